import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';

const key = ['repositories'];

export const repositoryQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/repositories', { signal })),
    }),
};

interface NewRepository {
  url: string;
  username?: string;
  password?: string;
  sshPrivateKey?: string;
}

export const repositoryMutations = {
  add: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (repository: NewRepository) => {
        await api.POST('/api/v1/repositories', { body: repository });
      },
      onSuccess: (_data, _repository, _result, { client }) => client.invalidateQueries({ queryKey: key }),
    }),
};
