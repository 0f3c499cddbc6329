import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type Tenant = components['schemas']['Tenant'];
export type QuotaUsage = components['schemas']['QuotaUsage'];

const key = ['tenants'];
const params = (name: string) => ({ path: { name } });

export const tenantQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/tenants', { signal })),
    }),
  usage: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'usage'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/tenants/{name}/usage', { params: params(name), signal })),
    }),
  deletion: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'deletion'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/tenants/{name}/deletion', { params: params(name), signal })),
    }),
};

const refresh = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: key });

export const tenantMutations = {
  create: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (tenant: { name: string; displayName?: string }) =>
        body(await api.POST('/api/v1/tenants', { body: tenant })),
      onSuccess: refresh,
    }),
  setupLink: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (name: string) =>
        body(await api.POST('/api/v1/tenants/{name}/setup-link', { params: params(name) })),
    }),
  suspend: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (reason: string) =>
        body(await api.POST('/api/v1/tenants/{name}/suspend', { params: params(name), body: { reason } })),
      onSuccess: refresh,
    }),
  resume: () =>
    mutationOptions({
      mutationFn: async (name: string) =>
        body(await api.POST('/api/v1/tenants/{name}/resume', { params: params(name) })),
      onSuccess: refresh,
    }),
  restore: () =>
    mutationOptions({
      mutationFn: async (name: string) =>
        body(await api.POST('/api/v1/tenants/{name}/restore', { params: params(name) })),
      onSuccess: refresh,
    }),
  remove: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => {
        await api.DELETE('/api/v1/tenants/{name}', { params: { ...params(name), query: { confirm: name } } });
      },
      onSuccess: refresh,
    }),
  quota: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ quota, limit }: { quota: string; limit: number | undefined }) =>
        body(
          await api.PATCH('/api/v1/tenants/{name}/quotas', {
            params: params(name),
            body: limit === undefined ? { reset: [quota] } : { quotas: { [quota]: limit } },
          }),
        ),
      onSuccess: refresh,
    }),
};
