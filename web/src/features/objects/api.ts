import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';
import { type ObjectSearch, valuesOf } from './search';

export type ListedResource = components['schemas']['ListedResource'];
export type Facet = components['schemas']['Facet'];
type Sync = components['schemas']['SyncStatusCode'];
type Health = components['schemas']['HealthStatusCode'];

const key = ['resources'];
const syncs: readonly Sync[] = ['Synced', 'OutOfSync', 'Unknown'];
const healths: readonly Health[] = ['Healthy', 'Progressing', 'Degraded', 'Suspended', 'Missing', 'Unknown'];

/** Rows of one page; more are read when somebody scrolls to them. */
export const pageSize = 100;

function conditions(search: ObjectSearch) {
  const of = <T extends string>(name: string, values: T[]) => (values.length > 0 ? { [name]: values } : {});
  return {
    ...(search.q ? { q: search.q } : {}),
    ...of('kind', valuesOf(search, 'kind')),
    ...of('namespace', valuesOf(search, 'namespace')),
    ...of('cluster', valuesOf(search, 'cluster')),
    ...of('project', valuesOf(search, 'project')),
    ...of(
      'sync',
      syncs.filter((s) => valuesOf(search, 'sync').includes(s)),
    ),
    ...of(
      'health',
      healths.filter((h) => valuesOf(search, 'health').includes(h)),
    ),
  };
}

export const objectQueries = {
  /** The objects that a search has, page by page. */
  pages: (search: ObjectSearch) =>
    infiniteQueryOptions({
      queryKey: [...key, search],
      initialPageParam: '',
      queryFn: async ({ signal, pageParam }) =>
        body(
          await api.GET('/api/v1/resources', {
            params: {
              query: { ...conditions(search), limit: pageSize, ...(pageParam ? { cursor: pageParam } : {}) },
            },
            signal,
          }),
        ),
      getNextPageParam: (last) => last.continue,
      refetchInterval: 20_000,
      placeholderData: keepPreviousData,
    }),
  /** How many they are, and how many have each value. */
  counts: (search: ObjectSearch) =>
    queryOptions({
      queryKey: [...key, 'counts', search],
      queryFn: async ({ signal }) =>
        body(
          await api.GET('/api/v1/resources', {
            params: { query: { ...conditions(search), limit: 1, facets: true } },
            signal,
          }),
        ),
      refetchInterval: 20_000,
      placeholderData: keepPreviousData,
    }),
};
