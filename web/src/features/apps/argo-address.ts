import { readResource, writeFacets } from './facet-address';

/** The tabs of Argo CD's panel of an object, and ours. */
const panels: Readonly<Record<string, string>> = {
  events: 'events',
  logs: 'logs',
  exec: 'terminal',
  manifest: 'yaml',
  diff: 'yaml',
};

const word = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');

/** A tab of the page that a parameter of Argo CD's address opens. */
function tabOf(search: Record<string, unknown>): string {
  if (word(search['operation']) === 'true' || search['operation'] === true) return 'operation';
  if (search['rollback'] !== undefined && word(search['rollback']) !== '-1') return 'history';
  return '';
}

const theirs = ['node', 'operation', 'rollback', 'conditions', 'deploy'] as const;

/** Whether an address is in the words of Argo CD. */
export function isArgo(search: object): boolean {
  return theirs.some((name) => name in search);
}

/**
 * The parameters of an application's page in our words, where they are in those
 * of Argo CD: `node` is group/kind/namespace/name and the number of a container,
 * and `tab` beside it is one of the panel.
 */
export function fromArgo(search: Record<string, unknown>): Record<string, unknown> {
  const { node, resource, operation: _o, rollback: _r, conditions: _c, ...rest } = search;
  const out: Record<string, unknown> = { ...rest };
  const [group, kind, namespace, name] = word(node).split('/');
  if (group !== undefined && kind && namespace !== undefined && name && !rest['object']) {
    const tab = word(rest['tab']);
    out['tab'] = undefined;
    // The node of the application itself is the page.
    if (kind !== 'Application' || group !== 'argoproj.io') {
      out['object'] = [group, kind, namespace, name].join('/');
      out['panel'] = rest['panel'] ?? panels[tab];
    }
  }
  out['tab'] ??= tabOf(search) || undefined;
  if (search['deploy'] !== undefined) {
    out['deploy'] = undefined;
    out['open'] ??= 'sync';
  }
  const chosen = readResource(word(resource));
  out['resource'] = writeFacets(chosen.facets) || undefined;
  if (chosen.name) out['find'] ??= chosen.name;
  return out;
}
