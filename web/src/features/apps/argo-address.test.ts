import { describe, expect, test } from 'vitest';
import { readResource, writeFacets } from './facet-address';
import { appSearch } from './search';

describe('UI-26 the parameters of Argo CD', () => {
  const cases: [says: string, search: Record<string, unknown>, ours: Record<string, string>][] = [
    ['the view is the same', { view: 'network', resource: '' }, { view: 'network' }],
    [
      'a node is the object of the panel',
      { view: 'tree', resource: '', node: 'apps/Deployment/shop/web/0' },
      { view: 'tree', object: 'apps/Deployment/shop/web' },
    ],
    [
      'its tab is one of the panel',
      { node: '/Pod/shop/web-1/0', tab: 'logs' },
      { object: '/Pod/shop/web-1', panel: 'logs' },
    ],
    [
      'exec is the terminal',
      { node: '/Pod/shop/web-1/0', tab: 'exec' },
      { object: '/Pod/shop/web-1', panel: 'terminal' },
    ],
    ['a cluster-wide node has no namespace', { node: '/Namespace//shop/0' }, { object: '/Namespace//shop' }],
    ['the node of the application is the page', { node: 'argoproj.io/Application/argocd/shop/0', tab: 'summary' }, {}],
    ['the operation is a tab', { operation: 'true' }, { tab: 'operation' }],
    ['so is it where the browser reads a word as true', { operation: true }, { tab: 'operation' }],
    ['a rollback is the history', { rollback: 0 }, { tab: 'history' }],
    ['no rollback is not', { rollback: '-1' }, {}],
    ['deploy is the panel of the sync', { deploy: 'all' }, { open: 'sync' }],
    [
      'a filter of objects stays',
      { resource: 'health:Degraded,sync:OutOfSync,kind:Pod,name:web,ownership:Owners' },
      { resource: 'kind:Pod,sync:OutOfSync,health:Degraded', find: 'web' },
    ],
    [
      'our own stay',
      { tab: 'diff', object: 'apps/Deployment/a/b', panel: 'yaml' },
      { tab: 'diff', object: 'apps/Deployment/a/b', panel: 'yaml' },
    ],
    ['what is no node is none', { node: 'a/b', tab: 'logs' }, { tab: 'logs' }],
    ['what is no text is none', { node: { a: 1 }, resource: [1] }, {}],
  ];
  for (const [says, search, ours] of cases) {
    test(says, () => expect(appSearch(search)).toEqual(ours));
  }
  test('what was read is written equally', () => {
    const text = 'kind:Pod,kind:Service,namespace:cluster-wide,health:none';
    expect(writeFacets(readResource(text).facets)).toBe(text);
    // An address in our words is not changed by reading it again.
    const once = appSearch({ node: '/Pod/shop/web-1/0', tab: 'logs', resource: text });
    expect(appSearch({ ...once })).toEqual(once);
  });
});
