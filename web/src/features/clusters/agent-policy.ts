import type { components } from '../../api/schema.gen';
import { t } from '../../texts';

export type AgentPolicy = components['schemas']['AgentPolicy'];

/** What the owner of a cluster says about one thing that an agent does. */
export interface PolicyFact {
  label: string;
  value: string;
  /** Whether it is permitted, at least somewhere. */
  permitted: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

const fields = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.fromEntries(Object.entries(value)) : {};
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

function kindOf(value: unknown): string {
  const of = fields(value);
  const name = (key: string) => (typeof of[key] === 'string' && of[key] !== '' ? String(of[key]) : '*');
  const what = [name('group') === '*' ? '' : name('group'), name('kind')].filter(Boolean).join('/');
  const where = name('namespace') === '*' && name('name') === '*' ? '' : ` ${name('namespace')}/${name('name')}`;
  const verbs = texts(of['verbs']);
  return `${what}${where}${verbs.length > 0 ? ` (${verbs.join(', ')})` : ''}`;
}

/** A switch, and what it is limited to. */
function access(label: string, value: unknown): PolicyFact {
  const of = fields(value);
  if (of['enabled'] !== true) return { label, value: 'not permitted', permitted: false };
  const limits = [
    ['namespaces', texts(of['namespaces']).join(', ')],
    ['containers', texts(of['containers']).join(', ')],
    ['ports', texts(of['ports']).join(', ')],
    ['at most', text(of['maxDuration'])],
    ['without typing', text(of['idleTimeout'])],
  ]
    .filter(([, limit]) => limit)
    .map(([name, limit]) => `${name} ${limit}`);
  return { label, value: limits.length > 0 ? `permitted: ${limits.join('; ')}` : 'permitted', permitted: true };
}

/** What an owner permits, thing by thing. */
export function policyFacts(policy: AgentPolicy): PolicyFact[] {
  const rules = fields(policy.rules);
  const yes = (label: string, key: string): PolicyFact => ({
    label,
    value: rules[key] === true ? 'permitted' : 'not permitted',
    permitted: rules[key] === true,
  });
  const list = (label: string, key: string, none: string, show: (value: unknown) => string): PolicyFact => {
    const all = Array.isArray(rules[key]) ? rules[key] : [];
    return { label, value: all.length > 0 ? all.map(show).join(', ') : none, permitted: true };
  };
  return [
    list('Namespaces', 'namespaces', 'all', String),
    list('Kinds', 'allow', 'all', kindOf),
    list('Never', 'deny', 'nothing', kindOf),
    yes(t('Delete objects'), 'allowDelete'),
    yes(t('Prune what Git no longer has'), 'allowPrune'),
    yes(t('Changes by people'), 'allowLiveEdit'),
    yes(t('Cluster-scoped objects'), 'allowClusterScoped'),
    yes(t("The agent's own namespace"), 'allowOwnNamespace'),
    access(t('Logs and events'), rules['logs']),
    access('Terminals', rules['exec']),
    access('Port-forward', rules['portForward']),
  ];
}
