import { mutationOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { type Application, api, body } from '../../../api/client';
import type { components } from '../../../api/schema.gen';
import { type AppKey, appFilters } from '../api';

export type AppDetails = components['schemas']['AppDetails'];
export type RepositoryApp = components['schemas']['RepositoryApp'];
export type ApplicationPreview = components['schemas']['ApplicationPreview'];
export type AppProject = components['schemas']['AppProject'];

const found = 'found';

/** What the hub finds for somebody who writes an application. */
export const editQueries = {
  /** The repositories that the caller may see. One that is being connected is asked for again. */
  repositories: () =>
    queryOptions({
      queryKey: [found, 'repositories'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/repositories', { signal })).items,
      refetchInterval: (q) => (q.state.data?.some((r) => r.connection.status === 'Unknown') ? 1500 : false),
      retry: false,
    }),
  /** Branches and tags, or the versions of a chart. */
  refs: (id: string, chart: string) =>
    queryOptions({
      queryKey: [found, id, 'refs', chart],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/repositories/{id}/refs', {
            params: { path: { id }, query: chart ? { chart } : {} },
            signal,
          }),
        ),
      retry: false,
      staleTime: 30_000,
    }),
  /** The directories that are a source of an application. */
  apps: (id: string, revision: string) =>
    queryOptions({
      queryKey: [found, id, 'apps', revision],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/repositories/{id}/apps', {
            params: { path: { id }, query: revision ? { revision } : {} },
            signal,
          }),
        ).items,
      retry: false,
      staleTime: 30_000,
    }),
  /** The charts of a chart repository. */
  charts: (id: string) =>
    queryOptions({
      queryKey: [found, id, 'charts'],
      queryFn: async ({ signal }) =>
        body(await api.GET('/api/v1/repositories/{id}/helmcharts', { params: { path: { id } }, signal })).items,
      retry: false,
      staleTime: 30_000,
    }),
  /** What a directory or chart is, and its parameters. */
  details: (id: string, at: { path?: string; chart?: string; revision?: string; plugin?: string }) =>
    queryOptions({
      queryKey: [found, id, 'details', at.path ?? '', at.chart ?? '', at.revision ?? '', at.plugin ?? ''],
      queryFn: async ({ signal }) => {
        const query = Object.fromEntries(Object.entries(at).filter(([, v]) => v));
        return body(await api.GET('/api/v1/repositories/{id}/appdetails', { params: { path: { id }, query }, signal }));
      },
      retry: false,
      staleTime: 30_000,
    }),
  clusters: () =>
    queryOptions({
      queryKey: [found, 'clusters'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/clusters', { signal })).items,
      retry: false,
    }),
  projects: () =>
    queryOptions({
      queryKey: [found, 'projects'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/projects', { signal })).items,
      retry: false,
    }),
  plugins: () =>
    queryOptions({
      queryKey: [found, 'plugins'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/settings/plugins', { signal })),
      retry: false,
      staleTime: 60_000,
    }),
};

/** The links that the tenant's settings declare for an application. */
export const linkQuery = (key: AppKey) =>
  queryOptions({
    queryKey: [found, 'links', key.namespace, key.name],
    queryFn: async ({ signal }) =>
      body(await api.GET('/api/v1/applications/{namespace}/{name}/links', { params: { path: key }, signal })).items,
    retry: false,
  });

/** How often, and how many times, the first render of an application is waited for. */
const renderPoll = 500;
const renderPolls = 120;

/** Syncs an application when it is rendered. One that cannot be rendered is left to its page. */
async function syncOnce(key: AppKey) {
  for (let i = 0; i < renderPolls; i++) {
    const app = body(await api.GET('/api/v1/applications/{namespace}/{name}', { params: { path: key } }));
    if (app.status?.capstan?.target) {
      await api.POST('/api/v1/applications/{namespace}/{name}/sync', { params: { path: key }, body: {} });
      return;
    }
    if (app.status?.conditions?.some((c) => c.type.endsWith('Error'))) return;
    await new Promise((done) => setTimeout(done, renderPoll));
  }
}

export const editMutations = {
  /** What the application would be; nothing is stored. */
  preview: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (app: Application) => body(await api.POST('/api/v1/applications/preview', { body: app })),
    }),
  /** Creates it; with sync, it is synced once as soon as it is rendered. */
  create: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ app, sync }: { app: Application; sync: boolean }) => {
        const made = body(await api.POST('/api/v1/applications', { params: { query: { validate: true } }, body: app }));
        const key = { namespace: made.metadata.namespace ?? 'argocd', name: made.metadata.name };
        // It is there: what follows is told by its page.
        if (sync) await syncOnce(key).catch(() => undefined);
        return key;
      },
    }),
  /** Replaces what people write of an application, if it is still the version that they began with. */
  save: (key: AppKey) =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async ({ app, version }: { app: Application; version: string }) =>
        body(
          await api.PUT('/api/v1/applications/{namespace}/{name}', {
            params: { path: key, header: { 'If-Match': `"${version}"` } },
            body: app,
          }),
        ),
      onSuccess: (_d: unknown, _v: unknown, _r: unknown, { client }: { client: QueryClient }) =>
        client.invalidateQueries(appFilters.one(key)),
    }),
  /** Makes a repository known to the hub, with the credential of a template if one fits. */
  connect: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (repository: { url: string; type: 'git' | 'helm' | 'oci' }) =>
        body(await api.POST('/api/v1/repositories', { body: repository })),
      onSuccess: (_d: unknown, _v: unknown, _r: unknown, { client }: { client: QueryClient }) =>
        client.invalidateQueries({ queryKey: [found, 'repositories'] }),
    }),
};
