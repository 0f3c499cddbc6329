import { mutationOptions, type QueryClient, type QueryFilters, queryOptions } from '@tanstack/react-query';
import { type Application, api, body, type Node, type SyncRequest } from '../../api/client';
import { untilNext } from '../../api/windows';

export interface AppKey {
  namespace: string;
  name: string;
}

const path = (key: AppKey) => ({ params: { path: key } });

const objectOf = (node: Node) => ({
  ...(node.group ? { group: node.group } : {}),
  version: node.version,
  kind: node.kind,
  ...(node.namespace ? { resourceNamespace: node.namespace } : {}),
  resourceName: node.name,
});

const everyOne = 'app';
const keyOf = (key: AppKey) => [everyOne, key.namespace, key.name];
const windows = 'windows';

/** What is read of applications. The stream of changes says what of it is stale. */
export const appQueries = {
  /** All applications that the caller may see, read page by page, and the cursor to follow from. */
  list: () =>
    queryOptions({
      queryKey: ['apps'],
      queryFn: async ({ signal }) => {
        const items: Application[] = [];
        let cursor: string | undefined;
        let next: string | undefined;
        do {
          const page = body(
            await api.GET('/api/v1/applications', {
              params: { query: { view: 'compact', limit: 500, ...(next ? { cursor: next } : {}) } },
              signal,
            }),
          );
          cursor ??= page.cursor;
          items.push(...page.items);
          next = page.metadata.continue;
        } while (next);
        return { items, cursor: cursor ?? '' };
      },
      staleTime: Number.POSITIVE_INFINITY,
    }),
  one: (key: AppKey) =>
    queryOptions({
      queryKey: keyOf(key),
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}', { ...path(key), signal })),
    }),
  tree: (key: AppKey) =>
    queryOptions({
      queryKey: [...keyOf(key), 'tree'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/tree', { ...path(key), signal })),
    }),
  diff: (key: AppKey) =>
    queryOptions({
      queryKey: [...keyOf(key), 'diff'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/diff', { ...path(key), signal })),
    }),
  history: (key: AppKey) =>
    queryOptions({
      queryKey: [...keyOf(key), 'history'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/history', { ...path(key), signal })),
    }),
  windows: (key: AppKey) =>
    queryOptions({
      queryKey: [...keyOf(key), windows],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/syncwindows', { ...path(key), signal })),
      refetchInterval: (q) =>
        untilNext(
          [q.state.data?.automated.nextChange, q.state.data?.manual.nextChange, q.state.data?.selfHeal.nextChange],
          Date.now(),
        ),
    }),
  actions: (key: AppKey, node: Node) =>
    queryOptions({
      queryKey: [...keyOf(key), 'actions', node.group, node.kind, node.namespace ?? '', node.name],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/resource/actions', {
            params: { path: key, query: objectOf(node) },
            signal,
          }),
        ),
    }),
};

/** Groups of these queries, to read them again. */
export const appFilters = {
  /** All that is read of any single application. */
  each: (): QueryFilters => ({ queryKey: [everyOne] }),
  /** All that is read of one. */
  one: (key: AppKey): QueryFilters => ({ queryKey: keyOf(key) }),
  /** The sync windows of every application. */
  windows: (): QueryFilters => ({
    predicate: (q) => q.queryKey[0] === everyOne && q.queryKey.at(-1) === windows,
  }),
};

/** Reads an application again once a change of it has ended, in either way. */
const readAgain =
  (key: AppKey) =>
  (_data: unknown, _error: Error | null, _variables: unknown, _result: unknown, { client }: { client: QueryClient }) =>
    client.invalidateQueries(appFilters.one(key));

export const appMutations = {
  /** Starts a sync; the stream brings its progress. */
  sync: (key: AppKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (request: SyncRequest) =>
        body(await api.POST('/api/v1/applications/{namespace}/{name}/sync', { ...path(key), body: request })),
      onSettled: readAgain(key),
    }),
  refresh: (key: AppKey) =>
    mutationOptions({
      mutationFn: async () => {
        await api.POST('/api/v1/applications/{namespace}/{name}/refresh', path(key));
      },
    }),
  terminate: (key: AppKey) =>
    mutationOptions({
      mutationFn: async () => {
        await api.POST('/api/v1/applications/{namespace}/{name}/terminate', path(key));
      },
    }),
  /** Ends the pause that a rollback began. */
  resume: (key: AppKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () =>
        body(await api.POST('/api/v1/applications/{namespace}/{name}/resume', { ...path(key), body: {} })),
      onSettled: readAgain(key),
    }),
  /** Approves what the operation in progress deletes. */
  approve: (key: AppKey) =>
    mutationOptions({
      mutationFn: async (reason: string) =>
        body(
          await api.POST('/api/v1/applications/{namespace}/{name}/approve', {
            ...path(key),
            body: reason ? { reason } : {},
          }),
        ),
      onSettled: readAgain(key),
    }),
  rollback: (key: AppKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (entry: { id: number; reason: string }) =>
        body(
          await api.POST('/api/v1/applications/{namespace}/{name}/rollback', {
            ...path(key),
            body: { ...entry, prune: true },
          }),
        ),
      onSettled: readAgain(key),
    }),
  /** Runs an action on a live object. */
  act: (key: AppKey, node: Node) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ action, values }: { action: string; values: Record<string, string> }) =>
        body(
          await api.POST('/api/v1/applications/{namespace}/{name}/resource/actions', {
            ...path(key),
            body: {
              ...objectOf(node),
              action,
              resourceActionParameters: Object.entries(values).map(([name, value]) => ({ name, value })),
            },
          }),
        ),
      onSettled: readAgain(key),
    }),
};
