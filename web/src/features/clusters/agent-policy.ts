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
  if (of['enabled'] !== true) return { label, value: t('not permitted'), permitted: false };
  const namespaces = texts(of['namespaces']).join(', ');
  const containers = texts(of['containers']).join(', ');
  const ports = texts(of['ports']).join(', ');
  const longest = text(of['maxDuration']);
  const idle = text(of['idleTimeout']);
  const limits = [
    namespaces && t('namespaces {{namespaces}}', { namespaces }),
    containers && t('containers {{containers}}', { containers }),
    ports && t('ports {{ports}}', { ports }),
    longest && t('at most {{longest}}', { longest }),
    idle && t('without typing {{idle}}', { idle }),
  ]
    .filter(Boolean)
    .join('; ');
  return { label, value: limits ? t('permitted: {{limits}}', { limits }) : t('permitted'), permitted: true };
}

/** What an owner permits, thing by thing. */
export function policyFacts(policy: AgentPolicy): PolicyFact[] {
  const rules = fields(policy.rules);
  const yes = (label: string, key: string): PolicyFact => ({
    label,
    value: rules[key] === true ? t('permitted') : t('not permitted'),
    permitted: rules[key] === true,
  });
  const list = (label: string, key: string, none: string, show: (value: unknown) => string): PolicyFact => {
    const all = Array.isArray(rules[key]) ? rules[key] : [];
    return { label, value: all.length > 0 ? all.map(show).join(', ') : none, permitted: true };
  };
  return [
    list(t('Namespaces'), 'namespaces', t('all'), String),
    list(t('Kinds'), 'allow', t('all'), kindOf),
    list(t('Never'), 'deny', t('nothing'), kindOf),
    yes(t('Delete objects'), 'allowDelete'),
    yes(t('Prune what Git no longer has'), 'allowPrune'),
    yes(t('Changes by people'), 'allowLiveEdit'),
    yes(t('Cluster-scoped objects'), 'allowClusterScoped'),
    yes(t("The agent's own namespace"), 'allowOwnNamespace'),
    access(t('Logs and events'), rules['logs']),
    access(t('Terminals'), rules['exec']),
    access(t('Port-forward'), rules['portForward']),
  ];
}
