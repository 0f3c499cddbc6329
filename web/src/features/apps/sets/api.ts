import { infiniteQueryOptions, mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../../api/client';
import type { components } from '../../../api/schema.gen';
import { oneOf, root, type SetKey, setFilters } from './keys';

export type ApplicationSet = components['schemas']['ApplicationSet'];
export type SetPreview = components['schemas']['ApplicationSetPreview'];
export type Previewed = components['schemas']['PreviewedApplication'];
export type SetStatus = components['schemas']['ApplicationSetStatus'];
type Health = components['schemas']['HealthStatusCode'];

/** What a list of sets is narrowed to; empty: everything. */
export interface SetFilter {
  q: string;
  project: string;
  health: Health | '';
}

const pageSize = 100;

export const setQueries = {
  list: (filter: SetFilter) =>
    infiniteQueryOptions({
      queryKey: [...root, 'list', filter.q, filter.project, filter.health],
      initialPageParam: '',
      queryFn: async ({ pageParam, signal }) =>
        body(
          await api.GET('/api/v1/applicationsets', {
            params: {
              query: {
                limit: pageSize,
                ...(pageParam ? { cursor: pageParam } : {}),
                ...(filter.q ? { q: filter.q } : {}),
                ...(filter.project ? { project: [filter.project] } : {}),
                ...(filter.health ? { health: [filter.health] } : {}),
              },
            },
            signal,
          }),
        ),
      getNextPageParam: (last) => last.metadata.continue || undefined,
    }),
  one: (key: SetKey) =>
    queryOptions({
      queryKey: oneOf(key),
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applicationsets/{namespace}/{name}', { params: { path: key }, signal })),
    }),
  events: (key: SetKey) =>
    queryOptions({
      queryKey: [...oneOf(key), 'events'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/applicationsets/{namespace}/{name}/events', { params: { path: key }, signal }))
          .items,
    }),
  /** What a stored set would make now, with the parameters of each application. */
  parameters: (set: ApplicationSet) =>
    queryOptions({
      queryKey: [...oneOf({ namespace: set.metadata.namespace ?? '', name: set.metadata.name }), 'parameters'],
      queryFn: async ({ signal }) => body(await api.POST('/api/v1/applicationsets/generate', { body: set, signal })),
      staleTime: 30_000,
      retry: false,
    }),
};

const refreshed =
  (key: SetKey) =>
  async (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) => {
    await Promise.all([client.invalidateQueries(setFilters.one(key)), client.invalidateQueries(setFilters.lists())]);
  };

export const setMutations = {
  /** Which applications there would be; nothing is stored. */
  preview: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (set: ApplicationSet) =>
        body(await api.POST('/api/v1/applicationsets/generate', { body: set })),
    }),
  create: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (set: ApplicationSet) => body(await api.POST('/api/v1/applicationsets', { body: set })),
      onSuccess: (_d: unknown, _v: unknown, _r: unknown, { client }: { client: QueryClient }) =>
        client.invalidateQueries(setFilters.lists()),
    }),
  /** Replaces what people write of a set, if it is still the version that they began with. */
  save: (key: SetKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ set, version }: { set: ApplicationSet; version: string }) =>
        body(
          await api.PUT('/api/v1/applicationsets/{namespace}/{name}', {
            params: { path: key, header: { 'If-Match': `"${version}"` } },
            body: set,
          }),
        ),
      onSuccess: refreshed(key),
    }),
  remove: (key: SetKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (cascade: boolean) => {
        await api.DELETE('/api/v1/applicationsets/{namespace}/{name}', { params: { path: key, query: { cascade } } });
      },
      // Its page is left, so that it is not read again.
      onSuccess: (_d: unknown, _v: unknown, _r: unknown, { client }: { client: QueryClient }) =>
        client.invalidateQueries(setFilters.lists()),
    }),
  refresh: (key: SetKey) =>
    mutationOptions({
      mutationFn: async () => {
        await api.POST('/api/v1/applicationsets/{namespace}/{name}/refresh', { params: { path: key } });
      },
      onSuccess: refreshed(key),
    }),
  /** Consents to the deletion of exactly the applications that a digest names. */
  approve: (key: SetKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (digest: string) =>
        body(
          await api.POST('/api/v1/applicationsets/{namespace}/{name}/approve', {
            params: { path: key },
            body: { digest },
          }),
        ),
      onSuccess: refreshed(key),
    }),
};
