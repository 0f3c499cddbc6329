import { expect, test } from 'vitest';
import type { Application, Node } from '../../api/client';
import {
  defaultPodSort,
  defaultView,
  externalLinks,
  linksOf,
  managedBy,
  networkNodes,
  noticeOf,
  podGroups,
  safeURL,
} from './annotations';

const app = (annotations: Record<string, string>, urls: string[] = []): Application => ({
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'Application',
  metadata: { name: 'shop', namespace: 'argocd', annotations },
  spec: {},
  status: { summary: { externalURLs: urls } },
});
const notice = (rest: Record<string, string>) =>
  app(
    Object.fromEntries(
      Object.entries({ content: 'frozen', ...rest }).map(([k, v]) => [`notice.argocd.argoproj.io/${k}`, v]),
    ),
  );
const node = (kind: string, name: string, more: Partial<Node> = {}): Node => ({
  group: '',
  version: 'v1',
  kind,
  name,
  managed: false,
  uid: name,
  ...more,
});

test('APP-26 a notice has its content, and defaults by severity', () => {
  expect(noticeOf(notice({}))).toEqual({
    content: 'frozen',
    severity: 'info',
    icon: 'fa-info-circle',
    url: undefined,
    permanent: false,
    scope: 'both',
  });
  expect(noticeOf(notice({ severity: 'critical' }))?.icon).toBe('fa-exclamation-circle');
  expect(
    noticeOf(notice({ icon: 'fa-bell', permanent: 'true', scope: 'icon', url: 'https://x.example/' })),
  ).toMatchObject({
    icon: 'fa-bell',
    permanent: true,
    scope: 'icon',
    url: 'https://x.example/',
  });
});

test('APP-26 words that are not known count as none', () => {
  expect(
    noticeOf(notice({ severity: 'fatal', icon: 'fa-bomb', scope: 'page', permanent: 'yes', url: 'javascript:1' })),
  ).toEqual(noticeOf(notice({})));
  expect(noticeOf(app({ 'notice.argocd.argoproj.io/severity': 'info' }))).toBeUndefined();
});

test('APP-26 a notice ends after 500 characters, and ours wins', () => {
  expect([...(noticeOf(notice({ content: 'ü'.repeat(600) }))?.content ?? '')]).toHaveLength(501);
  const both = app({ 'notice.argocd.argoproj.io/content': 'theirs', 'notice.capstan.dev/content': 'ours' });
  expect(noticeOf(both)?.content).toBe('ours');
});

test('APP-25 managed-by-url leads to the page of the application there, over http and https alone', () => {
  const at = (url: string) => managedBy(app({ 'argocd.argoproj.io/managed-by-url': url }));
  expect(at('https://argo.example.com/')).toBe('https://argo.example.com/applications/argocd/shop');
  for (const bad of ['javascript:alert(1)', 'data:text/html,x', '//argo', 'ftp://argo', 'https://u:p@argo', '']) {
    expect(at(bad)).toBeUndefined();
  }
  expect(managedBy(app({}))).toBeUndefined();
});

test('APP-27 preferences are honoured where they are known', () => {
  expect(defaultView(app({ 'pref.argocd.argoproj.io/default-view': 'pods' }))).toBe('pods');
  expect(defaultView(app({ 'pref.argocd.argoproj.io/default-view': 'map' }))).toBe('tree');
  expect(defaultPodSort(app({ 'pref.argocd.argoproj.io/default-pod-sort': 'node' }))).toBe('node');
  expect(defaultPodSort(app({}))).toBe('topLevelResource');
});

test('APP-27 pods are grouped by node, owner or what stands on top', () => {
  const nodes = [
    node('Deployment', 'web', { group: 'apps', managed: true }),
    node('ReplicaSet', 'web-1', { group: 'apps', parent: 'web' }),
    node('Pod', 'web-1-a', { parent: 'web-1', info: [{ name: 'node', value: 'n1' }] }),
    node('Pod', 'alone'),
  ];
  const named = (sort: Parameters<typeof podGroups>[1]) =>
    podGroups(nodes, sort).map(([g, p]) => [g, p.map((n) => n.name)]);
  expect(named('topLevelResource')).toEqual([
    ['Deployment web', ['web-1-a']],
    ['no owner', ['alone']],
  ]);
  expect(named('parentResource')[1]).toEqual(['ReplicaSet web-1', ['web-1-a']]);
  expect(named('node')).toEqual([
    ['n1', ['web-1-a']],
    ['not on a node', ['alone']],
  ]);
});

test('APP-27 the network view shows what leads traffic', () => {
  expect(networkNodes([node('Service', 'a'), node('ConfigMap', 'b'), node('Ingress', 'c')]).map((n) => n.name)).toEqual(
    ['a', 'c'],
  );
});

test('APP-28 links have titles, and only those of http and https are links', () => {
  expect(
    externalLinks(
      app({}, ['Docs|https://docs.example.com/x', 'http://shop.example.com/', 'x|javascript:1', 'mailto:a']),
    ),
  ).toEqual([
    { title: 'Docs', url: 'https://docs.example.com/x' },
    { title: 'shop.example.com', url: 'http://shop.example.com/' },
  ]);
  expect(linksOf(node('Service', 'a', { links: [{ url: 'https://a/' }, { title: 'b', url: 'vbscript:b' }] }))).toEqual([
    { title: 'https://a/', url: 'https://a/' },
  ]);
  expect(safeURL('HTTPS://A.example')).toBe('https://a.example/');
});
