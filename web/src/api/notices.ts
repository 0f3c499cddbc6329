import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from './client';
import type { components } from './schema.gen';

export type AutomationPause = components['schemas']['AutomationPause'];

const pauses = ['pauses'];

export const noticeQueries = {
  /** What every client of the tenant shows: a banner, help, downloads. */
  client: () =>
    queryOptions({
      queryKey: ['client settings'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/settings/client', { signal })),
      staleTime: 60_000,
      refetchInterval: 60_000,
      retry: false,
    }),
  /** The pauses of automation that concern the caller. */
  pauses: () =>
    queryOptions({
      queryKey: pauses,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/pauses', { signal })),
      refetchInterval: 15_000,
      retry: false,
    }),
};

export const noticeMutations = {
  pause: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (order: { cluster?: string; reason: string; for: string }) =>
        body(await api.POST('/api/v1/pauses', { body: order })),
      onSuccess: (_data, _order, _result, { client }) => client.invalidateQueries({ queryKey: pauses }),
    }),
  resume: () =>
    mutationOptions({
      mutationFn: async (cluster: string | undefined) => {
        await api.DELETE('/api/v1/pauses', { params: { query: cluster ? { cluster } : {} } });
      },
      onSuccess: (_data, _order, _result, { client }) => client.invalidateQueries({ queryKey: pauses }),
    }),
};
