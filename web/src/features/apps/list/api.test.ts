import { expect, test } from 'vitest';
import { patched, type Row } from './api';

const row = (name: string, health: Row['health'] = 'Healthy'): Row => ({
  id: name,
  namespace: 'argocd',
  name,
  project: 'default',
  sync: 'Synced',
  health,
  state: 'Healthy',
  automation: 'auto',
  changedAt: '2026-01-01T00:00:00Z',
});
const page = { rows: [row('a'), row('b')], total: 9 };

test('UX-NAV-1 a change takes the place of the row that is shown', () => {
  const got = patched(page, [{ kind: 'application', id: 'b', row: row('b', 'Degraded') }]);
  expect(got.rows.map((r) => [r.name, r.health])).toEqual([
    ['a', 'Healthy'],
    ['b', 'Degraded'],
  ]);
});

test('UX-NAV-1 one that is gone is not shown, and what is not in the window changes nothing', () => {
  expect(patched(page, [{ kind: 'application', id: 'a', gone: true }]).rows.map((r) => r.name)).toEqual(['b']);
  expect(
    patched(page, [
      { kind: 'application', id: 'c', row: row('c') },
      { kind: 'cluster', id: 'a' },
    ]),
  ).toBe(page);
});
