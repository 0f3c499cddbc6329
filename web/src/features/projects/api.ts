import { queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import { untilNext } from '../../api/windows';

const key = ['projects'];

export const projectQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })),
    }),
  windows: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'windows'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/projects/{name}/syncwindows', { params: { path: { name } }, signal })),
      refetchInterval: (q) =>
        untilNext(
          (q.state.data?.all ?? []).flatMap((w) => [w.opens, w.closes]),
          Date.now(),
        ),
    }),
};
