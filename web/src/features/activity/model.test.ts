import { expect, test } from 'vitest';
import type { AuditRecord } from './api';
import { byDay, resultLook } from './model';

const record = (seq: number, at: string): AuditRecord => ({
  seq,
  at,
  actor: 'ada',
  via: 'session',
  action: 'sync',
  resource: 'applications',
  object: 'default/shop',
  result: 'allowed',
  hash: '',
});

test('records are divided by day, in the order in which they come', () => {
  const days = byDay([
    record(3, '2026-03-02T12:00:00'),
    record(2, '2026-03-02T09:00:00'),
    record(1, '2026-03-01T12:00:00'),
  ]);
  // Whether a comma follows the weekday depends on the data of the engine.
  expect(days.map((d) => [d.day.replace(',', ''), d.records.map((r) => r.seq)])).toEqual([
    ['Monday 2 March 2026', [3, 2]],
    ['Sunday 1 March 2026', [1]],
  ]);
  expect(byDay([])).toEqual([]);
});

test('a result that is not known does not look well', () => {
  expect(resultLook('allowed').tone).toBe('ok');
  expect(resultLook('denied').tone).toBe('attention');
  expect(resultLook('failed').tone).toBe('failed');
  expect(resultLook('something')).toEqual({ label: 'something', tone: 'unknown', shape: 'unknown' });
});
