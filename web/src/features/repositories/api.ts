import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components, operations } from '../../api/schema.gen';

export type RepositoryInput = components['schemas']['RepositoryInput'];
export type Certificate = components['schemas']['Certificate'];
type NewCertificates = operations['addCertificates']['requestBody']['content']['application/json'];

const key = ['repositories'];
const trust = ['trust'];

export const repositoryQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/repositories', { signal })),
    }),
  templates: () =>
    queryOptions({
      queryKey: [...key, 'templates'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/repository-credentials', { signal })),
    }),
  deletion: (id: string) =>
    queryOptions({
      queryKey: [...key, id, 'deletion'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/repositories/{id}/deletion', { params: { path: { id } }, signal })),
    }),
  certificates: () =>
    queryOptions({
      queryKey: [...trust, 'certificates'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/certificates', { signal })),
    }),
  keys: () =>
    queryOptions({
      queryKey: [...trust, 'gpgkeys'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/gpgkeys', { signal })),
    }),
};

const refresh = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: key });
const refreshTrust = (_data: unknown, _input: unknown, _result: unknown, { client }: { client: QueryClient }) =>
  client.invalidateQueries({ queryKey: trust });

export const repositoryMutations = {
  /** Registers a repository, or replaces the settings of the one with its URL and project. */
  put: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (repository: RepositoryInput) => {
        await api.POST('/api/v1/repositories', { body: repository });
      },
      onSuccess: refresh,
    }),
  /** Tries to reach it with what a form has; nothing is stored. */
  validate: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (repository: RepositoryInput) =>
        body(await api.POST('/api/v1/repositories/validate', { body: repository })),
    }),
  refresh: () =>
    mutationOptions({
      mutationFn: async (id: string) => {
        await api.POST('/api/v1/repositories/{id}/refresh', { params: { path: { id } } });
      },
      onSuccess: refresh,
    }),
  remove: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/repositories/{id}', { params: { path: { id } } });
      },
      onSuccess: refresh,
    }),
  removeTemplate: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (id: string) => {
        await api.DELETE('/api/v1/repository-credentials/{id}', { params: { path: { id } } });
      },
      onSuccess: refresh,
    }),
  /** Stores a credential template, in the form of Argo CD's Secret: it has no operation of its own. */
  putTemplate: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (manifest: string) => {
        const answer = body(
          await api.POST('/api/v1/apply', {
            body: manifest,
            bodySerializer: (text: string) => text,
            headers: { 'Content-Type': 'application/yaml' },
          }),
        );
        const failed = answer.results.find((r) => r.error);
        if (failed?.error) throw new Error(failed.error.message);
      },
      onSuccess: refresh,
    }),
  addCertificates: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (input: NewCertificates) => body(await api.POST('/api/v1/certificates', { body: input })),
      onSuccess: refreshTrust,
    }),
  removeCertificate: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ serverName, type, subType }: Pick<Certificate, 'serverName' | 'type' | 'subType'>) =>
        body(
          await api.DELETE('/api/v1/certificates', {
            params: { query: { serverName, type, ...(type === 'ssh' ? { subType } : {}) } },
          }),
        ),
      onSuccess: refreshTrust,
    }),
  addKeys: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (keyData: string) => body(await api.POST('/api/v1/gpgkeys', { body: { keyData } })),
      onSuccess: refreshTrust,
    }),
  removeKey: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (keyID: string) => {
        await api.DELETE('/api/v1/gpgkeys/{keyID}', { params: { path: { keyID } } });
      },
      onSuccess: refreshTrust,
    }),
};
