import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';

const key = ['clusters'];

export const clusterQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/clusters', { signal })),
    }),
};

export const clusterMutations = {
  /** Registers a cluster and returns the commands that start its agent. */
  enroll: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (name: string) => body(await api.POST('/api/v1/clusters/enroll', { body: { name } })),
      onSuccess: (_data, _name, _result, { client }) => client.invalidateQueries({ queryKey: key }),
    }),
};
