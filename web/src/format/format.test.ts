import { expect, test, vi } from 'vitest';
import { ago, exact, shortRevision, took } from './format';

const now = Date.parse('2026-03-01T12:00:00Z');

test.each([
  [undefined, 'never'],
  ['2026-03-01T12:00:00Z', 'now'],
  ['2026-03-01T12:00:09Z', 'now'],
  ['2026-03-01T11:59:30Z', '30 sec. ago'],
  ['2026-03-01T11:58:01Z', '1 min. ago'],
  ['2026-03-01T09:00:00Z', '3 hr. ago'],
  ['2026-02-27T12:00:00Z', '2 days ago'],
])('%s was %s', (at, want) => expect(ago(at, now)).toBe(want));

test('a revision is shortened, and none is a dash', () => {
  expect(shortRevision('0123456789abcdef')).toBe('01234567');
  expect(shortRevision(undefined)).toBe('–');
});

test('an absolute time names its zone', () => {
  expect(exact('2026-03-01T12:00:00Z')).toMatch(/2026.*(UTC|GMT|[A-Z]{2,5})/);
  expect(exact(undefined)).toBe('');
  expect(exact('not a time')).toBe('');
});

test('ROLL-06 how long a deployment took is said in two units', () => {
  const at = (s: number) => new Date(Date.UTC(2026, 0, 1) + s * 1000).toISOString();
  expect(took(at(0), at(5))).toBe('5 s');
  expect(took(at(0), at(125))).toBe('2 min 5 s');
  expect(took(at(0), at(7300))).toBe('2 h 1 min');
  expect(took(undefined, at(1))).toBe('');
  expect(took(at(9), at(1))).toBe('');
});

test('UX-A11-5 times are written in the language of the page', async () => {
  vi.resetModules();
  localStorage.setItem('capstan-language', 'ja');
  const format = await import('./format');
  localStorage.clear();
  expect(format.ago(undefined, now)).toBe('なし');
  expect(format.ago('2026-03-01T12:00:00Z', now)).toBe('たった今');
  expect(format.ago('2026-03-01T09:00:00Z', now)).toBe('3 時間前');
  expect(format.exact('2026-03-01T12:00:00Z')).toMatch(/^2026\/3\/1 /);
  expect(format.took('2026-03-01T12:00:00Z', '2026-03-01T14:01:40Z')).toBe('2時間1分');
});
