import { expect, test } from 'vitest';
import type { Node } from '../../api/client';
import { layout } from '../../graph/layout';
import { facetValues, filtersSet, groupAbove, grouped, matching, owners } from './grouping';

const node = (kind: string, name: string, more: Partial<Node> = {}): Node => ({
  group: '',
  version: 'v1',
  kind,
  namespace: 'n',
  name,
  managed: true,
  uid: `${kind}-${name}`,
  status: 'Synced',
  ...more,
});
const many = (count: number, kind = 'ConfigMap', more: (i: number) => Partial<Node> = () => ({})) =>
  Array.from({ length: count }, (_, i) => node(kind, `${kind.toLowerCase()}-${i}`, more(i)));
const closed = { find: '', problems: false, open: new Set<string>() };

test('UI-05 few siblings of one kind are drawn one by one, many are a group', () => {
  expect(grouped(many(groupAbove), closed).every((i) => i.node)).toBe(true);
  const [group, ...rest] = grouped(many(groupAbove + 1), closed);
  expect(rest).toEqual([]);
  expect(group?.group).toEqual({ kind: 'ConfigMap', count: 9, open: false, states: [['Synced', 9]] });
});

test('UI-05 500 objects are a handful of boxes, and those with problems stand outside of their group', () => {
  const nodes = [
    ...many(500),
    ...many(24, 'Pod', (i) => ({
      managed: false,
      health: i === 7 ? 'Degraded' : 'Healthy',
      message: 'CrashLoopBackOff',
    })),
  ];
  const items = grouped(nodes, closed);
  expect(items.map((i) => i.group?.kind ?? i.node?.name)).toEqual(['Pod', 'pod-7', 'ConfigMap']);
  expect(items[0]?.group?.states).toEqual([
    ['Degraded', 1],
    ['Healthy', 23],
  ]);
  expect(items[1]?.parent).toBe(items[0]?.id);
  const open = grouped(nodes, { ...closed, open: new Set(items.map((i) => i.id)) });
  expect(open).toHaveLength(526);
});

test('UI-05 what a problem belongs to is drawn with it', () => {
  const nodes = many(20, 'Deployment').concat(
    node('Pod', 'bad', { managed: false, health: 'Degraded', parent: 'Deployment-deployment-3' }),
    node('Pod', 'good', { managed: false, health: 'Healthy', parent: 'Deployment-deployment-4' }),
  );
  expect(grouped(nodes, closed).map((i) => i.group?.kind ?? i.node?.name)).toEqual([
    'Deployment',
    'deployment-3',
    'bad',
  ]);
});

test('UI-05 a search leaves what matches and its owners; the switch leaves problems', () => {
  const nodes = [
    node('Deployment', 'web', { health: 'Progressing' }),
    node('ReplicaSet', 'web-1', { managed: false, parent: 'Deployment-web', health: 'Healthy' }),
    node('Pod', 'web-1-a', { managed: false, parent: 'ReplicaSet-web-1', health: 'Healthy' }),
    node('Secret', 'token', { status: 'OutOfSync' }),
    node('ConfigMap', 'fine'),
  ];
  const names = (find: string, problems: boolean) => matching(nodes, { find, problems }).map((n) => n.name);
  expect(names('pod web', false)).toEqual(['web', 'web-1', 'web-1-a']);
  expect(names('', true)).toEqual(['web', 'token']);
  expect(names('fine', true)).toEqual([]);
});

test('UI-05 owners that own each other end nothing', () => {
  const nodes = [node('A', 'a', { parent: 'B-b' }), node('B', 'b', { parent: 'A-a' })];
  expect(grouped(nodes, closed)).toEqual([]);
  expect(matching(nodes, { find: 'a', problems: false }).length).toBeGreaterThan(0);
});

test('UI-05 rows begin at the top left, an owner beside the first that it owns', () => {
  const nodes = [
    node('Deployment', 'web'),
    node('ReplicaSet', 'rs', { parent: 'Deployment-web' }),
    node('Service', 's'),
  ];
  const items = grouped(nodes, closed);
  const placed = layout<{ id: string; parent?: string | undefined }>(
    'app',
    { id: 'app' },
    items,
    (i) => i.id,
    (i) => i.parent,
  );
  expect(placed.map((p) => [p.id, p.y])).toEqual([
    ['app', 0],
    ['Deployment-web', 0],
    ['ReplicaSet-rs', 0],
    ['Service-s', 60],
  ]);
  expect(placed[0]?.x).toBe(0);
});

const { namespace: _, ...clusterWide } = node('ClusterRole', 'reader');
const mixed = [
  node('Deployment', 'web', { namespace: 'a', health: 'Healthy' }),
  node('Pod', 'web-1', {
    namespace: 'a',
    managed: false,
    health: 'Degraded',
    parent: 'Deployment-web',
  }),
  node('Deployment', 'api', { namespace: 'b', health: 'Healthy', status: 'OutOfSync' }),
  clusterWide,
];
const names = (nodes: Node[]) => nodes.map((n) => n.name);

test('UI-05 filters by kind, namespace, sync and health leave what fits all of them, with its owners', () => {
  const left = (facets: object) => names(matching(mixed, { find: '', problems: false, facets }));
  expect(left({ kind: ['Deployment'] })).toEqual(['web', 'api']);
  expect(left({ kind: ['Pod'] })).toEqual(['web', 'web-1']);
  expect(left({ namespace: ['b', 'cluster-wide'] })).toEqual(['api', 'reader']);
  expect(left({ sync: ['OutOfSync'] })).toEqual(['api']);
  expect(left({ sync: ['not in Git'] })).toEqual(['web', 'web-1']);
  expect(left({ health: ['Degraded'], namespace: ['a'] })).toEqual(['web', 'web-1']);
  expect(left({ health: ['Degraded'], namespace: ['b'] })).toEqual([]);
  expect(left({ kind: [] })).toHaveLength(4);
  expect(names(matching(mixed, { find: 'web', problems: true, facets: { kind: ['Deployment'] } }))).toEqual([]);
});

test('UI-05 a filter offers the values that there are, with counts', () => {
  expect(facetValues(mixed, 'kind')).toEqual([
    ['ClusterRole', 1],
    ['Deployment', 2],
    ['Pod', 1],
  ]);
  expect(facetValues(mixed, 'namespace').map(([v]) => v)).toEqual(['a', 'b', 'cluster-wide']);
  expect(facetValues(mixed, 'health').map(([v]) => v)).toEqual(['Degraded', 'Healthy', 'none']);
  expect(filtersSet({ kind: ['Pod'], health: [] })).toBe(1);
});

test('UI-05 without grouping all siblings are drawn one by one', () => {
  const items = grouped(many(20), { ...closed, flat: true });
  expect(items).toHaveLength(20);
  expect(items.every((i) => i.node)).toBe(true);
});

test('UI-05 a collapsed object hides what it owns and says how much that is', () => {
  const deep = [...mixed, node('Container', 'c', { managed: false, parent: 'Pod-web-1' }), node('Deployment', 'alone')];
  const items = grouped(deep, { ...closed, collapsed: new Set(['Deployment-web', 'Deployment-alone']) });
  expect(items.map((i) => i.node?.name)).not.toContain('web-1');
  expect(items.find((i) => i.node?.name === 'web')).toMatchObject({ children: 2, collapsed: true });
  expect(items.find((i) => i.node?.name === 'alone')).toMatchObject({ children: 0, collapsed: false });
});

test('UI-05 objects name their owners', () => {
  expect([...owners(mixed)]).toEqual([['Pod-web-1', 'Deployment web']]);
});
