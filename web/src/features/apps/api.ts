import {
  keepPreviousData,
  mutationOptions,
  type QueryClient,
  type QueryFilters,
  queryOptions,
} from '@tanstack/react-query';
import { type Application, api, body, type Node, type SyncRequest } from '../../api/client';
import type { Details } from '../../api/detail';
import { untilNext } from '../../api/windows';
import { referenceOf } from './object/reference';

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

/** The same names in the query of what concerns one object; without a version. */
const namesOf = (node: Node) => ({
  ...(node.group ? { group: node.group } : {}),
  kind: node.kind,
  ...(node.namespace ? { resourceNamespace: node.namespace } : {}),
  resourceName: node.name,
});

/** The same names in the body of a change of one live object. */
const liveOf = (node: Node) => ({
  ...(node.group ? { group: node.group } : {}),
  version: node.version,
  kind: node.kind,
  ...(node.namespace ? { namespace: node.namespace } : {}),
  name: node.name,
});

const everyOne = 'app';
const keyOf = (key: AppKey) => [everyOne, key.namespace, key.name];
const windows = 'windows';

/** What is read of applications. The stream of changes says what of it is stale. */
export const appQueries = {
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
  /** One object of the application with all its forms: live, desired and last applied. */
  objectDiff: (key: AppKey, node: Node) =>
    queryOptions({
      queryKey: [...keyOf(key), 'object', referenceOf(node), 'diff'],
      queryFn: async ({ signal }) => {
        const answer = body(
          await api.GET('/api/v1/applications/{namespace}/{name}/diff', {
            params: { path: key, query: { all: true, ...namesOf(node) } },
            signal,
          }),
        );
        return answer.items[0] ?? null;
      },
    }),
  /** A live object as the cluster has it now. */
  live: (key: AppKey, node: Node) =>
    queryOptions({
      queryKey: [...keyOf(key), 'object', referenceOf(node), 'live'],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/resource', {
            params: { path: key, query: objectOf(node) },
            signal,
          }),
        ).live,
    }),
  /** Events of the application's objects, or of one object. */
  events: (key: AppKey, node?: Node) =>
    queryOptions({
      queryKey: [...keyOf(key), 'events', node ? referenceOf(node) : ''],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/events', {
            params: { path: key, query: node ? namesOf(node) : {} },
            signal,
          }),
        ).items,
      refetchInterval: 15_000,
    }),
  operations: (key: AppKey) =>
    queryOptions({
      queryKey: [...keyOf(key), 'operations'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/operations', { ...path(key), signal })).items,
    }),
  /** What a sync would do, by a dry run of the cluster's API server; of another revision, if one is named. */
  plan: (key: AppKey, revision: string) =>
    queryOptions({
      queryKey: [...keyOf(key), 'plan', revision],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/diff', {
            params: { path: key, query: revision ? { revision } : { predict: true } },
            signal,
          }),
        ),
      retry: false,
    }),
  /** The desired objects, in the order of the snapshot. */
  manifests: (key: AppKey, history?: number) =>
    queryOptions({
      queryKey: [...keyOf(key), 'manifests', history ?? 0],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/manifests', {
            params: { path: key, query: history === undefined ? {} : { history } },
            signal,
          }),
        ),
    }),
  /** Author, date and message of a revision. A revision does not change. */
  revision: (key: AppKey, revision: string) =>
    queryOptions({
      queryKey: ['revision', key.namespace, key.name, revision],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/revisions/{revision}', {
            params: { path: { ...key, revision } },
            signal,
          }),
        ),
      staleTime: Number.POSITIVE_INFINITY,
      retry: false,
    }),
  /** How the sync windows stand. They depend on the project, the destination and the time, not on the state. */
  windows: (key: AppKey, spec: Pick<Application['spec'], 'project' | 'destination'>) =>
    queryOptions({
      queryKey: [windows, key.namespace, key.name, spec.project, spec.destination],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/syncwindows', { ...path(key), signal })),
      refetchInterval: (q) =>
        untilNext(
          [q.state.data?.automated.nextChange, q.state.data?.manual.nextChange, q.state.data?.selfHeal.nextChange],
          Date.now(),
        ),
    }),
  /** Why the application is not well; asked again when its objects say something else. */
  why: (key: AppKey, said: string) =>
    queryOptions({
      queryKey: ['why', key.namespace, key.name, said],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/why', { ...path(key), signal })),
      enabled: said !== '',
      refetchInterval: 30_000,
      placeholderData: keepPreviousData,
      retry: false,
    }),
  /** Links that the tenant declares for applications. */
  links: (key: AppKey) =>
    queryOptions({
      queryKey: ['links', key.namespace, key.name],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applications/{namespace}/{name}/links', { ...path(key), signal })),
      staleTime: 60_000,
      retry: false,
    }),
  /** Links that the tenant declares for live objects. */
  objectLinks: (key: AppKey, node: Node) =>
    queryOptions({
      queryKey: ['links', key.namespace, key.name, referenceOf(node)],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications/{namespace}/{name}/resource/links', {
            params: { path: key, query: objectOf(node) },
            signal,
          }),
        ),
      staleTime: 60_000,
      retry: false,
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
  /** The same without the application itself and its tree, where the stream brings these. */
  rest: (key: AppKey): QueryFilters => ({
    queryKey: keyOf(key),
    predicate: ({ queryKey: [, , , part] }) => part !== undefined && part !== 'tree',
  }),
  /** The sync windows of every application. */
  windows: (): QueryFilters => ({ queryKey: [windows] }),
};

/** Puts what the stream brings of an application in the place of what was read, and of what is being read. */
export function putDetails(client: QueryClient, key: AppKey, { application, tree }: Details) {
  const one = appQueries.one(key).queryKey;
  const nodes = appQueries.tree(key).queryKey;
  void client.cancelQueries({ queryKey: one, exact: true });
  void client.cancelQueries({ queryKey: nodes, exact: true });
  client.setQueryData(one, application);
  client.setQueryData(nodes, tree);
}

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
  /** Changes a live object, or says what the change would make of it. */
  patch: (key: AppKey, node: Node) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ patch, dryRun }: { patch: string; dryRun: boolean }) =>
        body(
          await api.POST('/api/v1/applications/{namespace}/{name}/resource/patch', {
            ...path(key),
            body: { ...liveOf(node), patchType: 'merge', patch, dryRun },
          }),
        ).live,
      onSettled: readAgain(key),
    }),
  /** Deletes a live object. */
  remove: (key: AppKey, node: Node) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (how: { force: boolean; propagation: 'foreground' | 'background' | 'orphan' }) => {
        await api.POST('/api/v1/applications/{namespace}/{name}/resource/delete', {
          ...path(key),
          body: { ...liveOf(node), ...how },
        });
      },
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
