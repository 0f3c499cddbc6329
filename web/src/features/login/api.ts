import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type DeviceLogin = components['schemas']['DeviceLogin'];

const setupKey = 'setup';

export const loginQueries = {
  /** The identity providers of a tenant. A refusal, such as for a tenant that is not there, leaves the form alone. */
  providers: (tenant: string) =>
    queryOptions({
      queryKey: ['sign-in providers', tenant],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/login/providers', { params: { query: tenant ? { tenant } : {} }, signal })),
      staleTime: 60_000,
      retry: false,
      meta: { inline: true },
    }),
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
  /** Id of the provider that checks both; empty for a local account. */
  provider: string;
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
      mutationFn: async ({ tenant, provider, ...rest }: Credentials) => {
        await api.POST('/api/v1/login', {
          body: { ...rest, ...(tenant ? { tenant } : {}), ...(provider ? { provider } : {}) },
        });
      },
      onSuccess: (_data, _credentials, _result, { client }) => {
        client.clear();
        proceed();
      },
    }),
  signOut: (proceed: () => Promise<void>) =>
    mutationOptions({
      mutationFn: async () => (await api.POST('/api/v1/logout')).data?.url,
      onSuccess: async (provider, _variables, _result, { client }) => {
        if (provider) {
          // The session with the identity provider ends there, which leads back.
          window.location.assign(provider);
          return;
        }
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

/** The page asks to approve or deny a device; its errors show there. */
export const deviceMutations = {
  /** Looks a code up. Wrong ones are counted, so this is asked for and never repeated by itself. */
  find: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (userCode: string) => body(await api.POST('/api/v1/device/lookup', { body: { userCode } })),
    }),
  decide: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (decision: { userCode: string; approve: boolean }) => {
        await api.POST('/api/v1/device/decision', { body: decision });
      },
    }),
};
