import { queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type SyncWindow = components['schemas']['SyncWindow'];
export type ApplicationWindows = components['schemas']['ApplicationWindows'];

export const projectsQuery = queryOptions({
  queryKey: ['projects'],
  queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })),
});

/** The time until the first of some moments, a little later than it; a minute at least once a quarter of an hour. */
export function untilNext(moments: (string | undefined)[], now: number): number {
  const next = moments.map((m) => (m ? Date.parse(m) - now : Number.NaN)).filter((d) => d > 0);
  return Math.max(1000, Math.min(15 * 60_000, ...next.map((d) => d + 500)));
}

export const projectWindowsQuery = (name: string) =>
  queryOptions({
    queryKey: ['projects', name, 'windows'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/projects/{name}/syncwindows', { params: { path: { name } }, signal })),
    refetchInterval: (q) =>
      untilNext(
        (q.state.data?.all ?? []).flatMap((w) => [w.opens, w.closes]),
        Date.now(),
      ),
  });

export const appWindowsQuery = (key: { namespace: string; name: string }) =>
  queryOptions({
    queryKey: ['app', key.namespace, key.name, 'windows'],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/syncwindows', { params: { path: key }, signal })),
    refetchInterval: (q) =>
      untilNext(
        [q.state.data?.automated.nextChange, q.state.data?.manual.nextChange, q.state.data?.selfHeal.nextChange],
        Date.now(),
      ),
  });
