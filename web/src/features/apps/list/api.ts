import { mutationOptions, type QueryFilters, queryOptions } from '@tanstack/react-query';
import { api, body, type StreamEvent } from '../../../api/client';
import type { components } from '../../../api/schema.gen';

export type Row = components['schemas']['ApplicationRow'];
export type Facet = components['schemas']['Facet'];

/** A list that somebody looks at: which applications, in which order, how many at once. */
export interface Spec {
  query: string;
  sort: string;
  size: number;
}

export interface RowPage {
  rows: Row[];
  total: number;
}

const lists = 'lists';
const pages = [lists, 'page'];

/** How long a part of a list is kept that is not on the screen. */
const keptFor = 60_000;

/** What is read of lists: windows of rows, and numbers. No list is read whole. */
export const listQueries = {
  /** The rows of one window, counted from 0. */
  page: (spec: Spec, index: number) =>
    queryOptions({
      queryKey: [...pages, spec, index],
      queryFn: async ({ signal }): Promise<RowPage> => {
        const got = body(
          await api.GET('/api/v1/applications', {
            params: {
              query: {
                view: 'row',
                limit: spec.size,
                ...(spec.query ? { query: spec.query } : {}),
                ...(spec.sort ? { sort: spec.sort } : {}),
                ...(index > 0 ? { offset: index * spec.size } : {}),
              },
            },
            signal,
          }),
        );
        return { rows: got.rows ?? [], total: got.total ?? 0 };
      },
      staleTime: Number.POSITIVE_INFINITY,
      gcTime: keptFor,
    }),
  /** How many applications a query has, and how many have which values. */
  numbers: (query: string, facets: readonly string[] = []) =>
    queryOptions({
      queryKey: [lists, 'numbers', query, facets.join(',')],
      queryFn: async ({ signal }) => {
        const got = body(
          await api.GET('/api/v1/applications', {
            params: {
              query: {
                view: 'row',
                limit: 1,
                ...(query ? { query } : {}),
                ...(facets.length > 0 ? { facets: facets.join(',') } : {}),
              },
            },
            signal,
          }),
        );
        return { total: got.total ?? 0, facets: got.facets ?? [] };
      },
      staleTime: Number.POSITIVE_INFINITY,
      gcTime: keptFor,
    }),
  /** From where the stream of changes is followed. */
  start: () =>
    queryOptions({
      queryKey: ['start'],
      queryFn: async ({ signal }) => {
        const got = body(
          await api.GET('/api/v1/applications', { params: { query: { view: 'row', limit: 1 } }, signal }),
        );
        return got.cursor ?? '';
      },
      staleTime: Number.POSITIVE_INFINITY,
    }),
};

export const listFilters = {
  /** All lists and numbers. */
  each: (): QueryFilters => ({ queryKey: [lists] }),
  /** The windows of rows alone. */
  pages: (): QueryFilters => ({ queryKey: pages }),
};

export type Bulk = components['schemas']['Bulk'];
export type BulkRequest = components['schemas']['BulkRequest'];
export type BulkAction = BulkRequest['action'];

const bulk = 'bulk';

/** How often the progress of a request is read. */
const progress = 1_000;

export const bulkQueries = {
  /** What a request would do; nothing is changed. */
  plan: (request: BulkRequest) =>
    queryOptions({
      queryKey: [bulk, 'plan', request],
      queryFn: async ({ signal }) =>
        body(await api.POST('/api/v1/bulk', { body: { ...request, dryRun: true }, signal })),
      staleTime: 0,
      gcTime: 0,
    }),
  /** How far a request is, with what did not go well. */
  one: (id: string) =>
    queryOptions({
      queryKey: [bulk, 'one', id],
      queryFn: async ({ signal }) => {
        const of = (state: 'failed' | 'refused') =>
          api.GET('/api/v1/bulk/{id}', { params: { path: { id }, query: { state, limit: 100 } }, signal });
        const [failed, refused] = await Promise.all([of('failed'), of('refused')]);
        return { ...body(refused), items: [...(body(failed).items ?? []), ...(body(refused).items ?? [])] };
      },
      refetchInterval: (q) => (q.state.data?.finishedAt || q.state.error ? false : progress),
    }),
};

export const bulkMutations = {
  start: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (request: BulkRequest) =>
        body(
          await api.POST('/api/v1/bulk', {
            body: request,
            params: { header: { 'Idempotency-Key': crypto.randomUUID() } },
          }),
        ),
    }),
  cancel: (id: string) =>
    mutationOptions({
      mutationFn: async () => body(await api.DELETE('/api/v1/bulk/{id}', { params: { path: { id } } })),
      onSettled: (_data, _error, _variables, _result, { client }) =>
        client.invalidateQueries({ queryKey: [bulk, 'one', id] }),
    }),
};

/** The values of one facet. */
export function valuesOf(facets: readonly Facet[] | undefined, field: string): Map<string, number> {
  return new Map((facets?.find((f) => f.field === field)?.values ?? []).map((v) => [v.value, v.count]));
}

/**
 * Puts changes into the rows of a window. Rows that come or go are seen when the
 * window is read again; one that is gone is not shown until then.
 */
export function patched(page: RowPage, events: readonly StreamEvent[]): RowPage {
  let { rows } = page;
  for (const e of events) {
    if (e.kind !== 'application') continue;
    const at = rows.findIndex((r) => r.id === e.id || (r.namespace === e.namespace && r.name === e.name));
    if (at < 0) continue;
    if (e.gone) rows = rows.filter((_, i) => i !== at);
    else if (e.row) rows = rows.map((r, i) => (i === at && e.row ? e.row : r));
  }
  return rows === page.rows ? page : { ...page, rows };
}
