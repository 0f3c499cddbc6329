import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, renderHook } from '@testing-library/react';
import type { ReactNode } from 'react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Application, StreamEvent, Tree } from '../api/client';
import { showApplication } from '../api/detail';
import { appQueries } from '../features/apps/api';
import { useLive } from './live';

class Source {
  static made: Source[] = [];
  onopen = () => {};
  onerror = () => {};
  heard = new Map<string, (m: { data: string; lastEventId: string }) => void>();
  constructor(readonly url: string) {
    Source.made.push(this);
  }
  addEventListener(kind: string, on: (m: { data: string; lastEventId: string }) => void) {
    this.heard.set(kind, on);
  }
  close() {}
}

const web = { namespace: 'argocd', name: 'web' };
const other = { namespace: 'argocd', name: 'other' };
const one = appQueries.one(web).queryKey;
const nodes = appQueries.tree(web).queryKey;
const tree = (tag: string, ...names: string[]): Tree => ({
  tag,
  cursor: '',
  nodes: names.map((name) => ({ group: '', version: 'v1', kind: 'Pod', name, managed: true })),
});
const application = (sync: string) =>
  ({ metadata: { name: 'web' }, spec: {}, status: { sync } }) as unknown as Application;

let client: QueryClient;
let stop: () => void;

/** An event of the stream that is open now. */
function send(kind: StreamEvent['kind'], event: Partial<StreamEvent>) {
  const data = JSON.stringify({ kind, id: 'a', ...web, ...event });
  Source.made.at(-1)?.heard.get(kind)?.({ data, lastEventId: '' });
  vi.advanceTimersByTime(20); // a frame
}

const stale = (key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated;
const names = () => client.getQueryData(nodes)?.nodes.map((n) => n.name);

beforeEach(() => {
  Source.made = [];
  vi.useFakeTimers();
  vi.stubGlobal('EventSource', Source);
  client = new QueryClient();
  client.setQueryData(one, application('old'));
  client.setQueryData(nodes, tree('1', 'a', 'b'));
  for (const q of [appQueries.diff(web), appQueries.one(other), appQueries.tree(other)]) {
    client.setQueryData<unknown>(q.queryKey, {});
  }
  showApplication('argocd/web');
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  stop = renderHook(() => useLive('5'), { wrapper }).unmount;
});
afterEach(() => {
  stop();
  cleanup();
  showApplication('');
  client.clear();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const first = { application: application('first'), base: '1', tree: tree('1') };

test('API-09 the stream is asked for the open application, and for what its tree is not', () => {
  expect(Source.made.map((s) => s.url)).toEqual(['/api/v1/stream?cursor=5&view=row&detail=argocd%2Fweb&tree=1']);
});

test('API-09 what the stream brings is not read again, but what hangs on it', () => {
  send('application', {});
  expect([stale(one), stale(nodes), stale(appQueries.diff(web).queryKey)]).toEqual([true, true, true]);
  send('detail', first);
  expect(client.getQueryData(one)).toEqual(application('first'));
  expect([stale(one), stale(nodes)]).toEqual([false, false]);
  client.setQueryData<unknown>(appQueries.diff(web).queryKey, {});
  send('resources', {});
  send('detail', { changed: { status: { sync: 'new' } }, base: '1', removed: [0], at: [1], tree: tree('2', 'c') });
  expect(client.getQueryData(one)).toEqual(application('new'));
  expect(names()).toEqual(['b', 'c']);
  expect([stale(one), stale(nodes), stale(appQueries.diff(web).queryKey)]).toEqual([false, false, true]);
  expect(stale(appQueries.one(other).queryKey)).toBe(false);
  send('resources', other);
  expect([stale(appQueries.one(other).queryKey), stale(appQueries.tree(other).queryKey)]).toEqual([true, true]);
});

test('API-09 an answer that was under way does not take the place of what the stream has brought', async () => {
  let answer = (_: Tree) => {};
  const read = client.fetchQuery({
    queryKey: nodes,
    queryFn: () => new Promise<Tree>((done) => (answer = done)),
  });
  send('detail', { ...first, base: '', tree: tree('2', 'new') });
  answer(tree('0', 'older'));
  await read;
  expect(names()).toEqual(['new']);
  // What was read meanwhile is no part of what the stream continues.
  client.setQueryData(nodes, tree('9', 'read'));
  send('detail', { base: '2', at: [1], tree: tree('3', 'newer') });
  expect(names()).toEqual(['new', 'newer']);
});

test('API-09 an application that is gone is read again, and whatever happens to it then', () => {
  send('detail', first);
  send('detail', { gone: true });
  expect([stale(one), stale(nodes)]).toEqual([true, true]);
  client.setQueryData(one, application('again'));
  send('application', {});
  expect(stale(one)).toBe(true);
});

test('API-09 an event that continues another tree has everything read again', () => {
  send('detail', first);
  send('detail', { base: '7', at: [0], tree: tree('8', 'x') });
  expect(names()).toEqual(['a', 'b']);
  expect([stale(one), stale(nodes)]).toEqual([true, true]);
});

test('API-09 a broken stream brings nothing until it has begun again', () => {
  send('detail', first);
  Source.made[0]?.onerror();
  vi.advanceTimersByTime(1_000);
  expect(Source.made).toHaveLength(2);
  send('application', {});
  expect(stale(one)).toBe(true);
  send('detail', first);
  expect(stale(one)).toBe(false);
});

test('API-09 another application takes the place of the first', () => {
  send('detail', first);
  client.setQueryData(nodes, tree('4', 'z'));
  showApplication('argocd/other');
  const waiting = { base: '1', removed: [0], tree: tree('2') };
  Source.made[0]?.heard.get('detail')?.({
    data: JSON.stringify({ kind: 'detail', id: 'a', ...web, ...waiting }),
    lastEventId: '',
  });
  vi.advanceTimersByTime(200);
  expect(Source.made.map((s) => s.url.split('&').slice(2).join('&'))).toEqual([
    'detail=argocd%2Fweb&tree=1',
    'detail=argocd%2Fother&tree=',
  ]);
  expect(names()).toEqual(['b']);
  send('application', {});
  expect(stale(one)).toBe(true);
  showApplication('');
  vi.advanceTimersByTime(200);
  expect(Source.made.at(-1)?.url).toBe('/api/v1/stream?cursor=5&view=row');
});
