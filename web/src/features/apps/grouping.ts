import type { Node } from '../../api/client';
import { t } from '../../texts';
import { nodeId } from './model';

/** So many siblings of one kind are drawn one by one; more make a group. */
export const groupAbove = 8;

/** So many members of a group that have problems are drawn beside it. */
const problemsShown = 10;

/** What is drawn: an object, or a group of siblings of one kind. */
export type Item =
  | { id: string; parent: string | undefined; node: Node; group?: undefined; children?: number; collapsed?: boolean }
  | { id: string; parent: string | undefined; group: Group; node?: undefined };

export interface Group {
  kind: string;
  count: number;
  open: boolean;
  /** How many are in each health, or in sync where the kind has no health; the worst first. */
  states: [string, number][];
}

const order = ['Degraded', 'Missing', 'Unknown', 'Progressing', 'OutOfSync', 'Suspended', 'Healthy', 'Synced'];

const stateWords: Readonly<Record<string, string>> = {
  Degraded: t('Degraded'),
  Missing: t('Missing'),
  Unknown: t('Unknown'),
  Progressing: t('Progressing'),
  OutOfSync: t('OutOfSync'),
  Suspended: t('Suspended'),
  Healthy: t('Healthy'),
  Synced: t('Synced'),
};

/** The state of members of a group, or the health of an object, in words. */
export const stateWord = (state: string) => stateWords[state] ?? state;

/** Whether a person should look at an object. */
export function isProblem(n: Node): boolean {
  return (
    ['Degraded', 'Missing', 'Unknown', 'Progressing'].includes(n.health ?? '') ||
    (n.managed && (n.status === 'OutOfSync' || n.status === 'Unknown')) ||
    n.requiresPruning === true
  );
}

function stateOf(n: Node): string {
  if (n.health && n.health !== 'Healthy') return n.health;
  if (n.managed && n.status === 'OutOfSync') return 'OutOfSync';
  return n.health ?? n.status ?? 'Healthy';
}

/** What objects can be filtered by; an empty list leaves all. */
export const facets = ['kind', 'namespace', 'sync', 'health'] as const;
export type Facet = (typeof facets)[number];
export type Facets = Partial<Record<Facet, readonly string[]>>;

export interface Wish {
  find: string;
  problems: boolean;
  facets?: Facets;
  /** Ids of the groups that are open. */
  open: ReadonlySet<string>;
  /** Draws all siblings one by one. */
  flat?: boolean;
  /** Ids of the objects whose children are not drawn. */
  collapsed?: ReadonlySet<string>;
}

/** The value of an object that a filter compares. */
export function facetOf(n: Node, facet: Facet): string {
  switch (facet) {
    case 'kind':
      return n.kind;
    case 'namespace':
      return n.namespace ?? 'cluster-wide';
    case 'sync':
      return n.managed ? (n.status ?? 'Unknown') : 'not in Git';
    case 'health':
      return n.health ?? 'none';
  }
}

/** The values of a filter that the objects have, with how many have each. */
export function facetValues(nodes: Node[], facet: Facet): [string, number][] {
  const counts = new Map<string, number>();
  for (const n of nodes) counts.set(facetOf(n, facet), (counts.get(facetOf(n, facet)) ?? 0) + 1);
  return [...counts].sort(([a], [b]) => a.localeCompare(b));
}

/** How many filters are set. */
export function filtersSet(set: Facets): number {
  return facets.filter((f) => (set[f]?.length ?? 0) > 0).length;
}

/** The name of each object's owner among the objects, by the object's id. */
export function owners(nodes: Node[]): Map<string, string> {
  const byId = new Map(nodes.map((n) => [nodeId(n), n]));
  const out = new Map<string, string>();
  for (const n of nodes) {
    const owner = n.parent ? byId.get(n.parent) : undefined;
    if (owner) out.set(nodeId(n), `${owner.kind} ${owner.name}`);
  }
  return out;
}

/** The objects that a search, the filters and the switch leave, with all their owners. */
export function matching(nodes: Node[], wish: Pick<Wish, 'find' | 'problems' | 'facets'>): Node[] {
  const words = wish.find.toLowerCase().split(/\s+/).filter(Boolean);
  const set = wish.facets ?? {};
  if (words.length === 0 && !wish.problems && filtersSet(set) === 0) return nodes;
  const chosen = facets.flatMap((f) => (set[f]?.length ? [[f, new Set(set[f])] as const] : []));
  const byId = new Map(nodes.map((n) => [nodeId(n), n]));
  const kept = new Set<string>();
  for (const n of nodes) {
    const text = `${n.kind} ${n.namespace ?? ''}/${n.name}`.toLowerCase();
    if (wish.problems && !isProblem(n)) continue;
    if (!words.every((w) => text.includes(w))) continue;
    if (!chosen.every(([f, values]) => values.has(facetOf(n, f)))) continue;
    for (let at: Node | undefined = n; at && !kept.has(nodeId(at)); at = at.parent ? byId.get(at.parent) : undefined) {
      kept.add(nodeId(at));
    }
  }
  return nodes.filter((n) => kept.has(nodeId(n)));
}

/**
 * Makes groups of many siblings of one kind. What a closed group holds is not
 * drawn, but for those members, and what they own, that have problems.
 */
export function grouped(nodes: Node[], wish: Wish): Item[] {
  const shown = matching(nodes, wish);
  const known = new Set(shown.map(nodeId));
  const parentOf = (n: Node) => (n.parent && known.has(n.parent) ? n.parent : undefined);
  const children = new Map<string, Node[]>();
  for (const n of shown) {
    const parent = parentOf(n) ?? '';
    push(children, parent, n);
  }
  const troubled = new Map<string, boolean>();
  const trouble = (n: Node, path: Set<string>): boolean => {
    const id = nodeId(n);
    const held = troubled.get(id);
    if (held !== undefined) return held;
    if (path.has(id)) return false;
    const found = isProblem(n) || (children.get(id) ?? []).some((c) => trouble(c, new Set([...path, id])));
    troubled.set(id, found);
    return found;
  };
  /** How many objects are below one, at any depth. */
  const below = (id: string): number => {
    const all = new Set<string>();
    const todo = [id];
    for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
      for (const c of children.get(at) ?? []) {
        const child = nodeId(c);
        if (child === id || all.has(child)) continue;
        all.add(child);
        todo.push(child);
      }
    }
    return all.size;
  };
  const out: Item[] = [];
  const seen = new Set<string>();
  const draw = (n: Node, parent: string | undefined) => {
    const id = nodeId(n);
    if (seen.has(id)) return;
    seen.add(id);
    const count = below(id);
    const collapsed = wish.collapsed?.has(id) === true && count > 0;
    out.push({ id, parent, node: n, children: count, collapsed });
    if (!collapsed) walk(id);
  };
  const walk = (parent: string) => {
    const kinds = new Map<string, Node[]>();
    for (const n of children.get(parent) ?? []) {
      const kind = `${n.group}/${n.kind}`;
      push(kinds, kind, n);
    }
    // Problems first: what is well may be read later.
    const sorted = [...kinds].sort(([, a], [, b]) => rank(b) - rank(a));
    for (const [kind, members] of sorted) {
      const first = [...members].sort((a, b) => Number(trouble(b, new Set())) - Number(trouble(a, new Set())));
      if (members.length <= groupAbove || wish.flat) {
        for (const n of first) draw(n, parent || undefined);
        continue;
      }
      const id = `group ${parent} ${kind}`;
      const open = wish.open.has(id);
      out.push({ id, parent: parent || undefined, group: summary(members, open) });
      const bad = first.filter((n) => trouble(n, new Set())).slice(0, problemsShown);
      for (const n of open ? first : bad) draw(n, id);
    }
  };
  const rank = (members: Node[]) => Number(members.some((n) => trouble(n, new Set())));
  walk('');
  return out;
}

/** Adds to a list of a map without copying it: a parent may have thousands of children. */
function push(lists: Map<string, Node[]>, key: string, n: Node) {
  const list = lists.get(key);
  if (list) list.push(n);
  else lists.set(key, [n]);
}

function summary(members: Node[], open: boolean): Group {
  const counts = new Map<string, number>();
  for (const n of members) counts.set(stateOf(n), (counts.get(stateOf(n)) ?? 0) + 1);
  const states = [...counts].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  return { kind: members[0]?.kind ?? '', count: members.length, open, states };
}
