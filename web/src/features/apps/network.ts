import type { Node } from '../../api/client';
import { t } from '../../texts';
import { isProblem } from './grouping';
import { nodeId } from './model';

/** A step of the way that traffic takes, from the left to the right. */
export type Layer = 'outside' | 'entry' | 'route' | 'service' | 'pods';
const layers: readonly Layer[] = ['outside', 'entry', 'route', 'service', 'pods'];

/** One place that traffic passes: an object, several pods as one, or the outside. */
export interface Stop {
  id: string;
  layer: Layer;
  title: string;
  about: string;
  /** The object whose panel it opens. */
  node?: Node | undefined;
  /** The pods that it stands for. */
  pods: Node[];
  /** It is named by another object, and not there. */
  missing: boolean;
  problem: boolean;
  column: number;
  row: number;
}

export interface Network {
  stops: Stop[];
  ways: { from: string; to: string }[];
  columns: number;
  rows: number;
}

/** Facts that tell where traffic goes; they are drawn and stand in no table. */
const drawn: readonly string[] = ['routes', 'parents', 'hosts', 'selector', 'podLabels'];

/** What is shown of an object in a few words. */
export const shownInfo = (node: Node): string[] =>
  (node.info ?? []).filter((i) => !drawn.includes(i.name)).map((i) => i.value);

const fact = (node: Node, name: string) => node.info?.find((i) => i.name === name)?.value ?? '';
const words = (node: Node, name: string) => fact(node, name).split(' ').filter(Boolean);

const routeKinds: readonly string[] = ['HTTPRoute', 'GRPCRoute', 'TCPRoute', 'TLSRoute', 'UDPRoute'];

function layerOf(node: Node): Layer | undefined {
  if (node.orphaned) return undefined;
  if (node.kind === 'Ingress' || (node.kind === 'Gateway' && node.group.startsWith('gateway.'))) return 'entry';
  if (routeKinds.includes(node.kind) && node.group.startsWith('gateway.')) return 'route';
  return node.kind === 'Service' && node.group === '' ? 'service' : undefined;
}

/** The name of an object as another one in a namespace would write it. */
const nameIn = (ref: string, namespace: string | undefined) => (ref.includes('/') ? ref : `${namespace ?? ''}/${ref}`);
const nameOf = (node: Node) => `${node.namespace ?? ''}/${node.name}`;

/** So many pods are drawn each; of more, those of one workload are one. */
const drawnEach = 24;

/** Whether labels, as key=value, have all that a selector asks for. */
export function selects(selector: readonly string[], labels: readonly string[]): boolean {
  return selector.length > 0 && selector.every((s) => labels.includes(s));
}

/** The ways of traffic to the pods of an application. */
export function networkOf(nodes: readonly Node[]): Network {
  const stops = new Map<string, Stop>();
  const ways: { from: string; to: string }[] = [];
  const put = (stop: Omit<Stop, 'column' | 'row'>) => {
    if (!stops.has(stop.id)) stops.set(stop.id, { ...stop, column: 0, row: 0 });
    return stop.id;
  };
  const absent = (kind: string, name: string, layer: Layer) =>
    put({
      id: `absent ${kind} ${name}`,
      layer,
      title: name.replace(/^\//, ''),
      about: t('{{kind}} that is not part of the application', { kind }),
      pods: [],
      missing: true,
      problem: layer === 'service',
    });
  const placed = nodes.flatMap((node) => {
    const layer = layerOf(node);
    return layer ? [{ node, layer }] : [];
  });
  for (const { node, layer } of placed) {
    const hosts = words(node, 'hosts').join(', ');
    put({
      id: nodeId(node),
      layer,
      title: node.name,
      about: [node.kind, layer === 'service' ? fact(node, 'type') : hosts].filter(Boolean).join(' · '),
      node,
      pods: [],
      missing: false,
      problem: isProblem(node),
    });
  }
  const find = (kind: string, name: string) =>
    placed.find((p) => p.node.kind === kind && nameOf(p.node) === name)?.node;
  const outside = () =>
    put({
      id: 'outside',
      layer: 'outside',
      title: t('Outside'),
      about: t('external traffic'),
      pods: [],
      missing: false,
      problem: false,
    });
  for (const { node, layer } of placed) {
    for (const name of words(node, 'routes').map((r) => nameIn(r, node.namespace))) {
      const to = find('Service', name);
      ways.push({ from: nodeId(node), to: to ? nodeId(to) : absent('Service', name, 'service') });
    }
    const parents = words(node, 'parents').map((r) => nameIn(r, node.namespace));
    for (const name of parents) {
      const from = find('Gateway', name);
      const id = from ? nodeId(from) : absent('Gateway', name, 'entry');
      if (!from) ways.push({ from: outside(), to: id });
      ways.push({ from: id, to: nodeId(node) });
    }
    const open = layer === 'service' && ['LoadBalancer', 'NodePort', 'ExternalName'].includes(fact(node, 'type'));
    if (layer === 'entry' || open || (layer === 'route' && parents.length === 0))
      ways.push({ from: outside(), to: nodeId(node) });
  }
  addPods(
    nodes,
    placed.filter((p) => p.layer === 'service').map((p) => p.node),
    put,
    ways,
  );
  return place([...stops.values()], unique(ways));
}

/** The pods behind services: those of the workloads whose labels the services ask for. */
function addPods(
  nodes: readonly Node[],
  services: readonly Node[],
  put: (stop: Omit<Stop, 'column' | 'row'>) => string,
  ways: { from: string; to: string }[],
) {
  const byUid = new Map(nodes.map((n) => [n.uid, n]));
  const top = (node: Node): Node => {
    let at = node;
    for (let i = 0; i < 20 && at.parent; i++) {
      const owner = byUid.get(at.parent);
      if (!owner) break;
      at = owner;
    }
    return at;
  };
  const behind = new Map<Node, Node[]>();
  for (const pod of nodes) {
    if (pod.kind !== 'Pod' || pod.group !== '' || pod.orphaned) continue;
    const owner = top(pod);
    behind.set(owner, [...(behind.get(owner) ?? []), pod]);
  }
  const reached = [...behind].filter(([owner]) =>
    services.some((s) => sameNamespace(s, owner) && selects(words(s, 'selector'), words(owner, 'podLabels'))),
  );
  const each = reached.reduce((n, [, pods]) => n + pods.length, 0) <= drawnEach;
  for (const service of services) {
    for (const [owner, pods] of reached) {
      if (!sameNamespace(service, owner) || !selects(words(service, 'selector'), words(owner, 'podLabels'))) continue;
      for (const group of each ? pods.map((p) => [p]) : [pods]) {
        ways.push({ from: nodeId(service), to: put(podStop(owner, group)) });
      }
    }
  }
}

const sameNamespace = (a: Node, b: Node) => (a.namespace ?? '') === (b.namespace ?? '');

function podStop(owner: Node, pods: Node[]): Omit<Stop, 'column' | 'row'> {
  const [first] = pods;
  const bad = pods.filter(isProblem).length;
  if (first && pods.length === 1) {
    return {
      id: nodeId(first),
      layer: 'pods',
      title: first.name,
      about: ['Pod', fact(first, 'ready') && t('{{ready}} ready', { ready: fact(first, 'ready') })]
        .filter(Boolean)
        .join(' · '),
      node: first,
      pods,
      missing: false,
      problem: bad > 0,
    };
  }
  return {
    id: `pods of ${nodeId(owner)}`,
    layer: 'pods',
    title: t('{{n}} Pods of {{name}}', { n: pods.length, name: owner.name }),
    about: [owner.kind, bad > 0 ? t('{{n}} with problems', { n: bad }) : t('no problems')].join(' · '),
    node: owner,
    pods,
    missing: false,
    problem: bad > 0,
  };
}

function unique(ways: { from: string; to: string }[]) {
  return [...new Map(ways.map((w) => [`${w.from} ${w.to}`, w])).values()];
}

/** Gives each stop its column, by its layer, and its row, beside what leads to it. */
function place(stops: Stop[], ways: { from: string; to: string }[]): Network {
  const used = layers.filter((l) => stops.some((s) => s.layer === l));
  let rows = 0;
  const order = new Map<string, number>();
  used.forEach((layer, column) => {
    const above = (s: Stop) => {
      const from = ways.flatMap((w) => (w.to === s.id && order.has(w.from) ? [order.get(w.from) ?? 0] : []));
      return from.length > 0 ? Math.min(...from) : Number.MAX_SAFE_INTEGER;
    };
    const own = stops
      .filter((s) => s.layer === layer)
      .sort((a, b) => above(a) - above(b) || a.title.localeCompare(b.title));
    own.forEach((s, row) => {
      s.column = column;
      s.row = row;
      order.set(s.id, row);
    });
    rows = Math.max(rows, own.length);
  });
  return { stops, ways, columns: used.length, rows };
}

/** Where an arrow key leads from a stop. */
export function neighbour(network: Network, id: string, key: string): string | undefined {
  const at = network.stops.find((s) => s.id === id);
  if (!at) return undefined;
  if (key === 'ArrowRight') return network.ways.find((w) => w.from === id)?.to;
  if (key === 'ArrowLeft') return network.ways.find((w) => w.to === id)?.from;
  const by = key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0;
  return by === 0 ? undefined : network.stops.find((s) => s.column === at.column && s.row === at.row + by)?.id;
}
