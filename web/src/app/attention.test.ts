import { expect, test } from 'vitest';
import type { Cluster, Repository } from '../api/client';
import type { Row } from '../features/apps/list/api';
import { concerns, urgentQuery } from './attention';

const row = (name: string, state: Row['state'], since = ''): Row => ({
  id: name,
  namespace: 'argocd',
  name,
  project: 'default',
  cluster: 'one',
  sync: 'Synced',
  health: 'Healthy',
  state,
  cause: `cause of ${name}`,
  since,
  automation: 'auto',
  changedAt: '2026-01-01T00:00:00Z',
});
const cluster = (name: string, connection: Cluster['connection']): Cluster => ({
  id: name,
  name,
  connection,
  createdAt: '2026-01-01T00:00:00Z',
});

test('UX-NAV-12 the most urgent comes first, and among equals the newest', () => {
  const found = concerns(
    [
      row('paused', 'Paused', '2026-01-03T00:00:00Z'),
      row('old', 'Degraded', '2026-01-01T00:00:00Z'),
      row('new', 'Degraded', '2026-01-02T00:00:00Z'),
      row('failed', 'SyncFailed', '2026-01-01T00:00:00Z'),
    ],
    [cluster('one', 'Connected')],
    [],
    new Map(),
  );
  expect(found.map((c) => c.name)).toEqual(['failed', 'new', 'old', 'paused']);
  expect(found[0]?.cause).toBe('cause of failed');
});

test('a cluster that is away is one concern, not one of each of its applications', () => {
  const clusters = [cluster('one', 'Connected'), cluster('two', 'Disconnected'), cluster('three', 'NeverConnected')];
  expect(urgentQuery(clusters)).toBe(
    'state:syncfailed,degraded,sourceerror,awaitingapproval,stale,missing,paused -cluster:two',
  );
  const found = concerns([row('behind', 'Stale')], clusters, [], new Map([['two', 2]]));
  expect(found.map((c) => c.name)).toEqual(['two', 'behind']);
  expect(found[0]?.where).toBe('cluster, 2 applications');
});

test('a repository that cannot be fetched is a concern, with its reason', () => {
  const repository = { url: 'https://git.example/a.git', connection: { status: 'Failed', message: 'no such host' } };
  expect(concerns([], [], [repository as Repository], new Map()).map((c) => [c.name, c.cause])).toEqual([
    ['https://git.example/a.git', 'no such host'],
  ]);
});
