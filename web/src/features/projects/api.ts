import { queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import { untilNext } from '../../api/windows';

export const projectsQuery = queryOptions({
  queryKey: ['projects'],
  queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })),
});

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
