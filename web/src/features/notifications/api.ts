import { infiniteQueryOptions, mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type Delivery = components['schemas']['Delivery'];
export type DeliveryState = components['schemas']['DeliveryState'];
export type Attempt = components['schemas']['DeliveryAttempt'];
type Trial = components['schemas']['TemplateTrial'];

/** Which deliveries are listed; absent: all. */
export interface Wanted {
  state?: DeliveryState | undefined;
  application?: string | undefined;
}

const key = ['notifications'];
const pageSize = 50;
const every = 5_000; // a delivery that waits says how it went soon

export const notificationQueries = {
  services: () =>
    queryOptions({
      queryKey: [...key, 'services'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/notifications/services', { signal })),
    }),
  triggers: () =>
    queryOptions({
      queryKey: [...key, 'triggers'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/notifications/triggers', { signal })),
    }),
  templates: () =>
    queryOptions({
      queryKey: [...key, 'templates'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/notifications/templates', { signal })),
    }),
  deliveries: (wanted: Wanted) =>
    infiniteQueryOptions({
      queryKey: [...key, 'deliveries', wanted],
      queryFn: async ({ pageParam, signal }) =>
        body(
          await api.GET('/api/v1/notifications/deliveries', {
            params: {
              query: {
                limit: pageSize,
                ...(wanted.state ? { state: wanted.state } : {}),
                ...(wanted.application ? { application: wanted.application } : {}),
                ...(pageParam ? { before: pageParam } : {}),
              },
            },
            signal,
          }),
        ),
      initialPageParam: '',
      getNextPageParam: (page) => page.next,
      refetchInterval: (query) =>
        query.state.data?.pages[0]?.items.some((d) => d.state === 'pending') ? every : false,
    }),
  delivery: (id: string) =>
    queryOptions({
      queryKey: [...key, 'delivery', id],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/notifications/deliveries/{id}', { params: { path: { id } }, signal })),
      refetchInterval: (query) => (query.state.data?.state === 'pending' ? every : false),
    }),
};

const refresh = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: key });

export const notificationMutations = {
  /** Sends a message once more. */
  redeliver: () =>
    mutationOptions({
      mutationFn: async (id: string) =>
        body(await api.POST('/api/v1/notifications/deliveries/{id}/redeliver', { params: { path: { id } } })),
      onSuccess: refresh,
    }),
  /** Renders a template for an application, and sends it if that is asked for. */
  try: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ name, ...trial }: Trial & { name: string }) =>
        body(await api.POST('/api/v1/notifications/templates/{name}/try', { params: { path: { name } }, body: trial })),
      onSuccess: refresh,
    }),
};
