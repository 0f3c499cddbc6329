import { infiniteQueryOptions, mutationOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';
import type { components } from '../../api/schema.gen';

export type AuditRecord = components['schemas']['AuditRecord'];

/** What is searched for in the audit log; absent: anything. */
export interface Search {
  text?: string | undefined;
  result?: 'allowed' | 'denied' | 'failed' | undefined;
  actor?: string | undefined;
  /** The first and the last day, as the browser's zone has them. */
  from?: string | undefined;
  to?: string | undefined;
  /** Whether the streams that pages of the console open are among them. */
  streams: boolean;
}

/** The beginning of a day, or of the day after it, in the browser's zone. */
export function edge(day: string | undefined, after = 0): string | undefined {
  const [y, m, d] = (day ?? '').split('-').map(Number);
  if (!y || !m || !d) return undefined;
  return new Date(y, m - 1, d + after).toISOString();
}

const queryOf = ({ text, result, actor, from, to, streams }: Search) => {
  const begin = edge(from);
  const end = edge(to ?? from, 1);
  return {
    ...(text ? { text } : {}),
    ...(result ? { result } : {}),
    ...(actor ? { actor } : {}),
    ...(begin ? { from: begin } : {}),
    ...(end ? { to: end } : {}),
    ...(streams ? {} : { withoutStreams: true }),
  };
};

/** The most records that an export of a search has. */
const mostExported = 10_000;

/** All records of a search, newest first. */
async function all(search: Search): Promise<AuditRecord[]> {
  const out: AuditRecord[] = [];
  let before: number | undefined;
  do {
    const page = body(
      await api.GET('/api/v1/audit', {
        params: { query: { limit: 500, ...queryOf(search), ...(before ? { before } : {}) } },
      }),
    );
    out.push(...page.items);
    before = page.next;
  } while (before && out.length < mostExported);
  return out;
}

/** How many records one page has. */
const pageSize = 100;

export const activityQueries = {
  /** The records that a search finds, newest first, page by page. */
  search: (search: Search) =>
    infiniteQueryOptions({
      queryKey: ['activity', search],
      queryFn: async ({ pageParam, signal }) =>
        body(
          await api.GET('/api/v1/audit', {
            params: {
              query: {
                limit: pageSize,
                ...queryOf(search),
                ...(pageParam ? { before: pageParam } : {}),
              },
            },
            signal,
          }),
        ),
      initialPageParam: 0,
      getNextPageParam: (page) => page.next,
    }),
};

export const activityMutations = {
  /** Saves what a search finds as a file with one record on each line. */
  save: () =>
    mutationOptions({
      mutationFn: async (search: Search) => {
        const records = await all(search);
        const link = document.createElement('a');
        const lines = records.map((r) => JSON.stringify(r)).join('\n');
        link.href = URL.createObjectURL(new Blob([`${lines}\n`], { type: 'application/x-ndjson' }));
        link.download = `activity-${search.from ?? 'all'}.jsonl`;
        link.click();
        URL.revokeObjectURL(link.href);
        return records.length;
      },
    }),
};
