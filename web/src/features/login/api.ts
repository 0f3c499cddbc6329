import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';

const setupKey = 'setup';

export const loginQueries = {
  /** What a setup link is for. The link works once, so a refusal is final. */
  setup: (token: string) =>
    queryOptions({
      queryKey: [setupKey, token],
      queryFn: async ({ signal }) => body(await api.POST('/api/v1/setup/check', { body: { token }, signal })),
      retry: false,
      enabled: token !== '',
    }),
};

interface Credentials {
  tenant: string;
  username: string;
  password: string;
}

interface NewAccount {
  token: string;
  username: string;
  password: string;
}

/** Each mutation is pending until `proceed`, which leaves the page, has ended. */
export const loginMutations = {
  signIn: (proceed: () => void) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ tenant, ...rest }: Credentials) => {
        await api.POST('/api/v1/login', { body: { ...rest, ...(tenant ? { tenant } : {}) } });
      },
      onSuccess: (_data, _credentials, _result, { client }) => {
        client.clear();
        proceed();
      },
    }),
  signOut: (proceed: () => Promise<void>) =>
    mutationOptions({
      mutationFn: async () => {
        await api.POST('/api/v1/logout');
      },
      onSuccess: async (_data, _variables, _result, { client }) => {
        await proceed();
        client.clear();
      },
    }),
  createAccount: (proceed: () => Promise<void>) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (account: NewAccount) => {
        await api.POST('/api/v1/setup', { body: account });
      },
      onSuccess: async (_data, _account, _result, { client }) => {
        // Whatever somebody else has seen here goes; the link is not asked again.
        client.removeQueries({ predicate: (q) => q.queryKey[0] !== setupKey });
        await proceed();
      },
    }),
};
