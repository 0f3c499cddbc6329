import type { Cluster, Repository } from '../api/client';
import type { Row } from '../features/apps/list/api';
import { quoted } from '../features/apps/list/terms';
import { problemOf } from '../features/repositories/model';
import { count, t } from '../texts';
import { urgentStates } from '../ui/badges';

/** One thing that somebody should look at. */
export interface Concern {
  key: string;
  /** The headline of an application, or Stale for what cannot be reached. */
  state: Row['state'];
  name: string;
  where: string;
  cause: string;
  since: string | undefined;
  to: { kind: 'application'; namespace: string; name: string } | { kind: 'clusters' } | { kind: 'repositories' };
}

/** The query of the applications that somebody has to act on. Those of clusters that are away are one thing each. */
export function urgentQuery(clusters: Cluster[]): string {
  const states = `state:${urgentStates.map((s) => s.toLowerCase()).join(',')}`;
  const away = clusters.filter((c) => c.connection === 'Disconnected').map((c) => quoted(c.name));
  return away.length > 0 && away.length <= mostAway ? `${states} -cluster:${away.join(',')}` : states;
}

/** How many clusters a query names. */
const mostAway = 50;

/**
 * What needs somebody now, the most urgent first and the newest first among equals.
 * Rows are those of urgentQuery; counts are the applications of each cluster.
 */
export function concerns(
  rows: Row[],
  clusters: Cluster[],
  repositories: Repository[],
  counts: Map<string, number>,
): Concern[] {
  const all: Concern[] = [];
  for (const c of clusters) {
    if (c.connection !== 'Disconnected') continue;
    const n = counts.get(c.name) ?? 0;
    all.push({
      key: `cluster ${c.name}`,
      state: 'Stale',
      name: c.name,
      where: count(n, 'cluster, {{n}} application', 'cluster, {{n}} applications'),
      cause: c.refusal?.message ?? t('the agent is not connected'),
      since: c.lastSeen,
      to: { kind: 'clusters' },
    });
  }
  for (const row of rows) {
    all.push({
      key: `${row.namespace}/${row.name}`,
      state: row.state,
      name: row.name,
      where: [row.project, row.cluster].filter(Boolean).join(' / '),
      cause: row.cause ?? '',
      since: row.since,
      to: { kind: 'application', namespace: row.namespace, name: row.name },
    });
  }
  for (const r of repositories) {
    if (r.connection.status !== 'Failed') continue;
    all.push({
      key: `repository ${r.url}`,
      state: 'SourceError',
      name: r.url,
      where: t('repository'),
      cause: problemOf(r),
      since: r.connection.fetchedAt,
      to: { kind: 'repositories' },
    });
  }
  const order: Row['state'][] = [...urgentStates];
  const rank = (c: Concern) => order.indexOf(c.state);
  return all.sort((a, b) => rank(a) - rank(b) || (b.since ?? '').localeCompare(a.since ?? ''));
}
