import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type Session = components['schemas']['Session'];
export type Token = components['schemas']['Token'];

const key = ['account'];
const of = (username: string) => ({ params: { path: { username } } });

export const accountQueries = {
  /** The accounts of the tenant, for those who may see them. */
  users: () =>
    queryOptions({
      queryKey: [...key, 'users'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/users', { signal })).items,
    }),
  sessions: (username: string) =>
    queryOptions({
      queryKey: [...key, username, 'sessions'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/users/{username}/sessions', { ...of(username), signal })).items,
    }),
  tokens: (username: string) =>
    queryOptions({
      queryKey: [...key, username, 'tokens'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/users/{username}/tokens', { ...of(username), signal })).items,
    }),
};

export const accountMutations = {
  endSession: (username: string) =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/users/{username}/sessions/{id}', { params: { path: { username, id } } });
      },
      onSettled: (_d, _e, _v, _r, { client }) => client.invalidateQueries({ queryKey: [...key, username, 'sessions'] }),
    }),
  /** Ends all sessions of somebody else, or all others of one's own. */
  endSessions: (username: string, others: boolean) =>
    mutationOptions({
      mutationFn: async () =>
        body(
          await api.DELETE('/api/v1/users/{username}/sessions', {
            params: { path: { username }, query: others ? { others } : {} },
          }),
        ).ended,
      onSettled: (_d, _e, _v, _r, { client }) => client.invalidateQueries({ queryKey: [...key, username, 'sessions'] }),
    }),
  createToken: (username: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (token: { name: string; expiresIn: string }) =>
        body(await api.POST('/api/v1/users/{username}/tokens', { ...of(username), body: token })),
      onSuccess: (_d, _v, _r, { client }) => client.invalidateQueries({ queryKey: [...key, username, 'tokens'] }),
    }),
  revokeToken: (username: string) =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/users/{username}/tokens/{id}', { params: { path: { username, id } } });
      },
      onSettled: (_d, _e, _v, _r, { client }) => client.invalidateQueries({ queryKey: [...key, username, 'tokens'] }),
    }),
};
