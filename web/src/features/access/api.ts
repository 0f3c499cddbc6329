import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components, operations } from '../../api/schema.gen';
import { placeOf } from './model';

export type User = components['schemas']['User'];
export type Token = components['schemas']['Token'];
export type PolicyPreview = components['schemas']['PolicyPreview'];
export type PolicyEffect = components['schemas']['PolicyEffect'];
export type RightDecision = components['schemas']['RightDecision'];
export type PolicyVersion = components['schemas']['PolicyVersion'];
export type PolicyKeyChange = components['schemas']['PolicyKeyChange'];
export type SignInTest = components['schemas']['SignInTest'];
/** The configuration of providers, by key of argocd-cm. */
export type SignInValues = { 'oidc.config'?: string; 'dex.config'?: string };
/** What is stored of sign-ins, and the version of the settings that it is of. */
export interface StoredSignIn {
  version: number;
  values: SignInValues;
  /** Local accounts sign in with a password. */
  locals: boolean;
}
export type WhoCan = components['schemas']['WhoCan'];
type NewUser = operations['createUser']['requestBody']['content']['application/json'];
type UserChange = operations['updateUser']['requestBody']['content']['application/json'];

/** The map of settings that has the policy. */
const policyMap = 'argocd-rbac-cm';
export const policyKeys = ['policy.csv', 'policy.tests', 'policy.org.csv', 'policy.default', 'scopes'] as const;
export type PolicyKey = (typeof policyKeys)[number];
/** What the keys of a policy are changed to. */
export type PolicyValues = Partial<Record<PolicyKey, string | null>>;

/** A question that is asked of the policy. */
export interface Question {
  resource: string;
  action: string;
  object: string;
}

const users = ['access', 'users'];
const policy = ['access', 'policy'];
const signIn = ['access', 'sign-in'];
const params = (username: string) => ({ path: { username } });

export const accessQueries = {
  users: () =>
    queryOptions({
      queryKey: users,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/users', { signal })),
    }),
  tokens: (username: string) =>
    queryOptions({
      queryKey: [...users, username, 'tokens'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/users/{username}/tokens', { params: params(username), signal })),
    }),
  /** The policy as it is stored, and the version of the settings that it is of. */
  policy: () =>
    queryOptions({
      queryKey: policy,
      queryFn: async ({ signal }) => {
        const all = body(await api.GET('/api/v1/settings', { signal }));
        const values = Object.fromEntries(
          all.items.filter((s) => s.map === policyMap).map((s): [string, string] => [s.key, s.value ?? '']),
        );
        const changed = all.items
          .filter((s) => s.map === policyMap)
          .sort((a, b) => b.updatedAt.localeCompare(a.updatedAt))[0];
        const sso = all.items.filter(
          (s) => s.map === 'argocd-cm' && (s.key === 'dex.config' || s.key.startsWith('oidc.')),
        );
        return { version: all.version, values, changed, sso };
      },
    }),
  state: () =>
    queryOptions({
      queryKey: [...policy, 'state'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/settings/rbac', { signal })),
    }),
  /** What the policy was after each change, the newest first. */
  versions: () =>
    queryOptions({
      queryKey: [...policy, 'versions'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/settings/rbac/history', { params: { query: { limit: 50 } }, signal })),
    }),
  version: (number: string) =>
    queryOptions({
      queryKey: [...policy, 'versions', number],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/settings/rbac/history/{number}', { params: { path: { number } }, signal })),
      retry: false,
    }),
  /** What a change would do; asked while somebody writes it. */
  preview: (values: PolicyValues) =>
    queryOptions({
      queryKey: [...policy, 'preview', values],
      queryFn: async ({ signal }) =>
        body(await api.POST('/api/v1/settings/rbac/preview', { body: { values }, signal })),
      staleTime: 30_000,
      retry: false,
    }),
  can: (who: string, question: Question) =>
    queryOptions({
      queryKey: [...policy, 'can', who, question],
      queryFn: async ({ signal }) => {
        const [user = '', ...groups] = who.split(/[\s,]+/).filter(Boolean);
        const answer = body(
          await api.POST('/api/v1/account/can-i', {
            body: {
              ...(user ? { subject: { user, ...(groups.length > 0 ? { groups } : {}) } } : {}),
              questions: [question],
            },
            signal,
          }),
        );
        return answer.items[0];
      },
      retry: false,
    }),
  whoCan: (question: Question) =>
    queryOptions({
      queryKey: [...policy, 'who', question],
      queryFn: async ({ signal }) => body(await api.POST('/api/v1/account/who-can', { body: question, signal })),
      retry: false,
    }),
  providers: (tenant: string) =>
    queryOptions({
      queryKey: ['access', 'providers', tenant],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/login/providers', { params: { query: { tenant } }, signal })),
    }),
  signIn: () =>
    queryOptions({
      queryKey: signIn,
      queryFn: async ({ signal }): Promise<StoredSignIn> => {
        const all = body(await api.GET('/api/v1/settings', { signal }));
        const value = (key: string) => all.items.find((s) => s.map === 'argocd-cm' && s.key === key)?.value;
        const oidc = value('oidc.config');
        const dex = value('dex.config');
        return {
          version: all.version,
          values: { ...(oidc ? { 'oidc.config': oidc } : {}), ...(dex ? { 'dex.config': dex } : {}) },
          locals: (value('admin.enabled') ?? 'true') !== 'false',
        };
      },
    }),
  /** A test sign-in, asked for again until the browser has come back. */
  test: (id: string) =>
    queryOptions({
      queryKey: [...signIn, 'test', id],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/settings/sign-in/tests/{id}', { params: { path: { id } }, signal })),
      refetchInterval: (q) => (q.state.data?.state === 'waiting' ? 1_500 : false),
      retry: false,
    }),
  scimTokens: () =>
    queryOptions({
      queryKey: ['access', 'scim'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/scim/tokens', { signal })),
    }),
  projects: () =>
    queryOptions({
      queryKey: ['access', 'projects'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })),
    }),
};

const refreshUsers = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: users });
const refreshSCIM = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: ['access', 'scim'] });

export const accessMutations = {
  create: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (user: NewUser) => body(await api.POST('/api/v1/users', { body: user })),
      onSuccess: refreshUsers,
    }),
  update: (username: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (change: UserChange) =>
        body(await api.PUT('/api/v1/users/{username}', { params: params(username), body: change })),
      onSuccess: refreshUsers,
    }),
  remove: (username: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => {
        await api.DELETE('/api/v1/users/{username}', { params: params(username) });
      },
      onSuccess: refreshUsers,
    }),
  createToken: (username: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (token: { name: string; expiresIn?: string }) =>
        body(await api.POST('/api/v1/users/{username}/tokens', { params: params(username), body: token })),
      onSuccess: refreshUsers,
    }),
  removeToken: (username: string) =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/users/{username}/tokens/{id}', { params: { path: { username, id } } });
      },
      onSuccess: refreshUsers,
    }),
  createSCIM: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (name: string) => body(await api.POST('/api/v1/scim/tokens', { body: { name } })),
      onSuccess: refreshSCIM,
    }),
  removeSCIM: () =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/scim/tokens/{id}', { params: { path: { id } } });
      },
      onSuccess: refreshSCIM,
    }),
  startTest: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (test: { provider: string; values: SignInValues; secrets: Record<string, string> }) =>
        body(await api.POST('/api/v1/settings/sign-in/tests', { body: test })),
    }),
  /** Stores a configuration with its secrets, if the settings are still those that it was based on. */
  saveSignIn: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({
        version,
        values,
        secrets,
      }: {
        version: number;
        values: SignInValues;
        secrets: Record<string, string>;
      }) => {
        const maps: Record<string, Record<string, string>> = { 'argocd-cm': { ...values } };
        for (const [reference, value] of Object.entries(secrets)) {
          const { map, key } = placeOf(reference);
          maps[map] = { ...maps[map], [key]: value };
        }
        return body(
          await api.PATCH('/api/v1/settings', {
            params: { header: version > 0 ? { 'If-Match': `"${version}"` } : {} },
            body: { values: maps },
          }),
        );
      },
      onSuccess: (_data, _input, _result, { client }) =>
        Promise.all([
          client.invalidateQueries({ queryKey: signIn, exact: true }),
          client.invalidateQueries({ queryKey: ['access', 'providers'] }),
          client.invalidateQueries({ queryKey: ['settings'] }),
        ]),
    }),
  /** Makes the policy what it was in a version, if the settings are still those that were looked at. */
  revert: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ number, version }: { number: string; version: number }) =>
        body(
          await api.POST('/api/v1/settings/rbac/history/{number}/revert', {
            params: { path: { number }, header: version > 0 ? { 'If-Match': `"${version}"` } : {} },
          }),
        ),
      onSuccess: (_data, _input, _result, { client }) =>
        Promise.all([
          client.invalidateQueries({ queryKey: policy }),
          client.invalidateQueries({ queryKey: ['settings'] }),
        ]),
    }),
  /** Stores a policy, if the settings are still those that it was based on. */
  save: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ version, values }: { version: number; values: PolicyValues }) =>
        body(
          await api.PATCH('/api/v1/settings', {
            params: { header: version > 0 ? { 'If-Match': `"${version}"` } : {} },
            body: { values: { [policyMap]: values } },
          }),
        ),
      onSuccess: (_data, _input, _result, { client }) =>
        Promise.all([
          client.invalidateQueries({ queryKey: policy }),
          client.invalidateQueries({ queryKey: ['settings'] }),
        ]),
    }),
};
