import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';
import { untilNext } from '../../api/windows';

export type AppProject = components['schemas']['AppProject'];
export type Token = components['schemas']['Token'];

const key = ['projects'];
const params = (name: string) => ({ path: { name } });

export const projectQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })),
    }),
  /** A project with what it inherits, and its own repositories and clusters. */
  detailed: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'detailed'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/projects/{name}/detailed', { params: params(name), signal })),
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
  links: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'links'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/projects/{name}/links', { params: params(name), signal })),
    }),
  tokens: (name: string, role: string) =>
    queryOptions({
      queryKey: [...key, name, 'tokens', role],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/projects/{name}/roles/{role}/tokens', { params: { path: { name, role } }, signal }),
        ),
    }),
  events: (name: string) =>
    queryOptions({
      queryKey: [...key, name, 'events'],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/audit', {
            params: { query: { resource: 'projects', object: name, limit: 100 } },
            signal,
          }),
        ),
    }),
};

const refresh = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: key });

export const projectMutations = {
  create: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (project: AppProject) => body(await api.POST('/api/v1/projects', { body: project })),
      onSuccess: refresh,
    }),
  update: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (project: AppProject) =>
        body(
          await api.PUT('/api/v1/projects/{name}', {
            params: {
              path: { name },
              header: project.metadata.resourceVersion ? { 'If-Match': `"${project.metadata.resourceVersion}"` } : {},
            },
            body: project,
          }),
        ),
      onSuccess: refresh,
    }),
  remove: (name: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async () => {
        await api.DELETE('/api/v1/projects/{name}', { params: params(name) });
      },
      onSuccess: refresh,
    }),
  createToken: (name: string, role: string) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (token: { name: string }) =>
        body(
          await api.POST('/api/v1/projects/{name}/roles/{role}/tokens', {
            params: { path: { name, role } },
            body: token,
          }),
        ),
      onSuccess: refresh,
    }),
  removeToken: (name: string, role: string) =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/projects/{name}/roles/{role}/tokens/{id}', { params: { path: { name, role, id } } });
      },
      onSuccess: refresh,
    }),
};
