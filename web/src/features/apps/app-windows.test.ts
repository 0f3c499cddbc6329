import { describe, expect, it } from 'vitest';
import { type ApplicationWindows, type SyncWindow, untilNext } from '../../api/windows';
import { clock, concerns, exceptions } from '../../ui/sync-windows';
import { summary } from './app-windows';

const night: SyncWindow = {
  kind: 'deny',
  schedule: '0 22 * * *',
  duration: '8h',
  timeZone: 'Europe/Berlin',
  applications: ['*'],
  active: true,
};

const state = (change: Partial<ApplicationWindows>): ApplicationWindows => ({
  canSync: false,
  activeWindows: [night],
  assignedWindows: [night],
  automated: { allowed: false, nextChange: '2026-03-29T04:00:00Z' },
  manual: { allowed: false },
  selfHeal: { allowed: false },
  at: '2026-03-29T00:00:00Z',
  ...change,
});

describe('sync windows', () => {
  it('UX-OP-10 the next opening is shown on the clock of the window, in the night of a clock change too', () => {
    expect(clock('2026-03-29T04:00:00Z', 'Europe/Berlin')).toContain('06:00');
    expect(clock('2026-03-28T05:00:00Z', 'Europe/Berlin')).toContain('06:00');
    expect(clock('2026-03-29T04:00:00Z', 'Moon/Base')).toContain('04:00');
    expect(clock(undefined, 'UTC')).toBe('');
  });
  it('WIN-10 one line says whether it is open and until when', () => {
    expect(summary(state({}))).toMatchObject({ word: 'Closed', line: expect.stringContaining('opens Sun') });
    expect(summary(state({ canSync: true })).line).toContain('by hand only');
    expect(summary(state({ automated: { allowed: false } })).line).toContain('no opening is in sight');
    expect(summary(state({ automated: { allowed: true } }))).toMatchObject({ word: 'Open', line: 'stays open' });
  });
  it('WIN-02 says what a window concerns and what goes on', () => {
    expect(concerns({ ...night, clusters: ['prod'] })).toBe('applications * or clusters prod');
    expect(concerns({ ...night, clusters: ['prod'], andOperator: true })).toBe('applications * and clusters prod');
    expect(concerns({ ...night, applications: [] })).toBe('nothing');
    expect(exceptions({ ...night, manualSync: true, selfHeal: true })).toBe('sync by hand, self-heal');
  });
  it('WIN-10 is asked again when something changes, and not all the time', () => {
    const now = Date.parse('2026-01-01T00:00:00Z');
    expect(untilNext(['2026-01-01T00:00:10Z', undefined, '2025-01-01T00:00:00Z'], now)).toBe(10_500);
    expect(untilNext([], now)).toBe(900_000);
    expect(untilNext(['2026-01-01T00:00:00.100Z'], now)).toBe(1000);
  });
});
