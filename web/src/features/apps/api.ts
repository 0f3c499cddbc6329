import { queryOptions, useMutation, useQueryClient } from '@tanstack/react-query';
import { type Application, api, body, type Node, type SyncRequest } from '../../api/client';
import { untilNext } from '../../api/windows';

/** All applications that the caller may see, read page by page, and the cursor to follow from. */
export const appsQuery = queryOptions({
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
});

export interface AppKey {
  namespace: string;
  name: string;
}

const path = (key: AppKey) => ({ params: { path: key } });

export const appQuery = (key: AppKey) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}', { ...path(key), signal })),
  });

export const treeQuery = (key: AppKey) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'tree'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/tree', { ...path(key), signal })),
  });

export const diffQuery = (key: AppKey) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'diff'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/diff', { ...path(key), signal })),
  });

export const historyQuery = (key: AppKey) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'history'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/history', { ...path(key), signal })),
  });

export const appWindowsQuery = (key: AppKey) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'windows'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/syncwindows', { ...path(key), signal })),
    refetchInterval: (q) =>
      untilNext(
        [q.state.data?.automated.nextChange, q.state.data?.manual.nextChange, q.state.data?.selfHeal.nextChange],
        Date.now(),
      ),
  });

const objectOf = (node: Node) => ({
  ...(node.group ? { group: node.group } : {}),
  version: node.version,
  kind: node.kind,
  ...(node.namespace ? { resourceNamespace: node.namespace } : {}),
  resourceName: node.name,
});

export const actionsQuery = (key: AppKey, node: Node) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'actions', node.group, node.kind, node.namespace ?? '', node.name],
    queryFn: async ({ signal }) =>
      body(
        await api.GET('/api/v1/applications/{namespace}/{name}/resource/actions', {
          params: { path: key, query: objectOf(node) },
          signal,
        }),
      ),
  });

/** Runs an action on a live object. */
export function useAction(key: AppKey) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (wish: { node: Node; action: string; values: Record<string, string> }) =>
      body(
        await api.POST('/api/v1/applications/{namespace}/{name}/resource/actions', {
          ...path(key),
          body: {
            ...objectOf(wish.node),
            action: wish.action,
            resourceActionParameters: Object.entries(wish.values).map(([name, value]) => ({ name, value })),
          },
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: ['app', key.namespace, key.name] }),
  });
}

/** Starts a sync; the stream brings its progress. */
export function useSync(key: AppKey) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (request: SyncRequest) =>
      body(await api.POST('/api/v1/applications/{namespace}/{name}/sync', { ...path(key), body: request })),
    onSettled: () => client.invalidateQueries({ queryKey: ['app', key.namespace, key.name] }),
  });
}

export function useRefresh(key: AppKey) {
  return useMutation({
    mutationFn: async () => {
      await api.POST('/api/v1/applications/{namespace}/{name}/refresh', path(key));
    },
  });
}

export function useTerminate(key: AppKey) {
  return useMutation({
    mutationFn: async () => {
      await api.POST('/api/v1/applications/{namespace}/{name}/terminate', path(key));
    },
  });
}

/** Ends the pause that a rollback began. */
export function useResume(key: AppKey) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async () =>
      body(await api.POST('/api/v1/applications/{namespace}/{name}/resume', { ...path(key), body: {} })),
    onSettled: () => client.invalidateQueries({ queryKey: ['app', key.namespace, key.name] }),
  });
}

/** Approves what the operation in progress deletes. */
export function useApprove(key: AppKey) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (reason: string) =>
      body(
        await api.POST('/api/v1/applications/{namespace}/{name}/approve', {
          ...path(key),
          body: reason ? { reason } : {},
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: ['app', key.namespace, key.name] }),
  });
}

export function useRollback(key: AppKey) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (entry: { id: number; reason: string }) =>
      body(
        await api.POST('/api/v1/applications/{namespace}/{name}/rollback', {
          ...path(key),
          body: { ...entry, prune: true },
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: ['app', key.namespace, key.name] }),
  });
}
