import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body, type Cluster } from '../../api/client';
import type { components, operations } from '../../api/schema.gen';

export type DeletionPlan = components['schemas']['DeletionPlan'];
export type ClusterScope = components['schemas']['ClusterScope'];
type EnrolmentOrder = operations['enrollCluster']['requestBody']['content']['application/json'];
type ClusterChange = operations['updateCluster']['requestBody']['content']['application/json'];

const key = ['clusters'];
const path = (name: string) => ({ path: { name } });

export const clusterQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/clusters', { signal })),
    }),
  /** One cluster with its enrolments. */
  one: (name: string) =>
    queryOptions({
      queryKey: [...key, name],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/clusters/{name}', { params: path(name), signal })),
    }),
  /** What its owner permits its agent; the agent is asked. */
  policy: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'policy'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/clusters/{name}/agent-policy', { params: path(name), signal })),
      retry: false,
    }),
  /** The same, asked for often: while somebody waits for an agent. */
  waiting: (name: string) =>
    queryOptions({
      ...clusterQueries.one(name),
      refetchInterval: (query) => (query.state.data?.connection === 'Connected' ? false : 1000),
    }),
  deletion: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'deletion'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/clusters/{name}/deletion', { params: path(name), signal })),
    }),
  /** The first applications of a cluster. */
  applications: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'applications'],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/applications', {
            params: { query: { cluster: [name], view: 'compact', limit: 100 } },
            signal,
          }),
        ),
    }),
  /** What people did with a cluster, newest first. */
  events: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'events'],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/audit', {
            params: { query: { resource: 'clusters', object: name, limit: 100 } },
            signal,
          }),
        ),
    }),
};

const refresh = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: key });

export const clusterMutations = {
  /** Registers a cluster and returns the commands that start its agent. */
  enroll: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (order: EnrolmentOrder) => body(await api.POST('/api/v1/clusters/enroll', { body: order })),
      onSuccess: refresh,
    }),
  update: (cluster: Cluster) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (change: ClusterChange) =>
        body(
          await api.PUT('/api/v1/clusters/{name}', {
            params: {
              ...path(cluster.name),
              header: cluster.resourceVersion ? { 'If-Match': `"${cluster.resourceVersion}"` } : {},
            },
            body: change,
          }),
        ),
      onSuccess: refresh,
    }),
  upgrade: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (image: string) =>
        body(await api.POST('/api/v1/clusters/{name}/upgrade', { params: path(name), body: { image } })),
      onSuccess: refresh,
    }),
  revoke: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => body(await api.POST('/api/v1/clusters/{name}/revoke', { params: path(name) })),
      onSuccess: refresh,
    }),
  acceptHub: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => body(await api.POST('/api/v1/clusters/{name}/accept-hub', { params: path(name) })),
      onSuccess: refresh,
    }),
  keep: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (fingerprint: string) =>
        body(await api.POST('/api/v1/clusters/{name}/keep', { params: path(name), body: { fingerprint } })),
      onSuccess: refresh,
    }),
  remove: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => {
        await api.DELETE('/api/v1/clusters/{name}', { params: path(name) });
      },
      onSuccess: refresh,
    }),
};
