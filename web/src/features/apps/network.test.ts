import { expect, test } from 'vitest';
import type { Node } from '../../api/client';
import { neighbour, networkOf, selects, shownInfo } from './network';
import { spoken } from './network-view';

const node = (kind: string, name: string, info: Record<string, string> = {}, more: Partial<Node> = {}): Node => ({
  uid: `${kind}-${name}`,
  group: '',
  version: 'v1',
  kind,
  namespace: 'shop',
  name,
  managed: true,
  info: Object.entries(info).map(([n, value]) => ({ name: n, value })),
  ...more,
});

const gateway = { group: 'gateway.networking.k8s.io' };
const some = [
  node('Ingress', 'web', { routes: 'web gone', hosts: 'shop.example.com' }, { group: 'networking.k8s.io' }),
  node('Gateway', 'edge', { hosts: '*.example.com' }, gateway),
  node('HTTPRoute', 'api', { routes: 'api', parents: 'edge', hosts: 'api.example.com' }, gateway),
  node('HTTPRoute', 'mesh', { routes: 'api', parents: 'infra/mesh' }, gateway),
  node('Service', 'web', { type: 'ClusterIP', selector: 'app=web' }),
  node('Service', 'api', { type: 'LoadBalancer', selector: 'app=api tier=back' }),
  node('Deployment', 'web', { podLabels: 'app=web', ready: '2/2' }, { group: 'apps' }),
  node('ReplicaSet', 'web-1', {}, { group: 'apps', parent: 'Deployment-web', managed: false }),
  node('Pod', 'web-a', { ready: '1/1' }, { parent: 'ReplicaSet-web-1', managed: false }),
  node('Pod', 'web-b', { ready: '0/1' }, { parent: 'ReplicaSet-web-1', managed: false, health: 'Degraded' }),
  node('Deployment', 'other', { podLabels: 'app=api' }, { group: 'apps' }),
  node('Pod', 'other-a', {}, { parent: 'Deployment-other', managed: false }),
];
const titled = (nodes: Node[]) => {
  const net = networkOf(nodes);
  const title = (id: string) => net.stops.find((s) => s.id === id)?.title ?? '';
  return net.ways.map((w) => `${title(w.from)} > ${title(w.to)}`).sort();
};

test('UI-06 traffic is followed from the outside over entries, routes and services to pods', () => {
  expect(titled(some)).toEqual([
    'Outside > api',
    'Outside > edge',
    'Outside > infra/mesh',
    'Outside > web',
    'api > api',
    'edge > api',
    'infra/mesh > mesh',
    'mesh > api',
    'web > shop/gone',
    'web > web',
    'web > web-a',
    'web > web-b',
  ]);
});

test('UI-06 a service asks for all of its labels, and one without a selector reaches nothing', () => {
  expect(selects(['app=api', 'tier=back'], ['app=api'])).toBe(false);
  expect(selects([], ['app=api'])).toBe(false);
  expect(networkOf(some).stops.map((s) => s.title)).not.toContain('other-a');
});

test('UI-06 a service that is named and not there is told as a problem', () => {
  const gone = networkOf(some).stops.find((s) => s.title === 'shop/gone');
  expect(gone).toMatchObject({ missing: true, problem: true, layer: 'service' });
});

test('UI-06 many pods of a workload are one stop', () => {
  const many = Array.from({ length: 40 }, (_, i) =>
    node('Pod', `web-${i}`, {}, { parent: 'Deployment-web', managed: false }),
  );
  const net = networkOf([...some.slice(0, 7), ...many]);
  expect(net.stops.filter((s) => s.layer === 'pods').map((s) => s.title)).toEqual(['40 Pods of web']);
});

test('UI-06 arrow keys follow the traffic, and every stop says where it comes from and goes to', () => {
  const net = networkOf(some);
  const id = (kind: string, name: string) => net.stops.find((s) => s.node?.kind === kind && s.title === name)?.id ?? '';
  expect(neighbour(net, id('Ingress', 'web'), 'ArrowRight')).toBe(id('Service', 'web'));
  expect(neighbour(net, id('Service', 'web'), 'ArrowLeft')).toBe(id('Ingress', 'web'));
  expect(neighbour(net, id('Pod', 'web-a'), 'ArrowDown')).toBe(id('Pod', 'web-b'));
  expect(neighbour(net, id('Pod', 'web-b'), 'ArrowRight')).toBeUndefined();
  const service = net.stops.find((s) => s.id === id('Service', 'web'));
  expect(service && spoken(service, net)).toBe('from web; to web-a, web-b');
});

test('UI-06 what is drawn stands in no table', () => {
  expect(some.slice(4, 7).flatMap(shownInfo)).toEqual(['ClusterIP', 'LoadBalancer', '2/2']);
});
