import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { showApplication } from './detail';
import { follow, read } from './stream';

class Source {
  static readonly CLOSED = 2;
  static made: Source[] = [];
  readyState = 0;
  onopen = () => {};
  onerror = () => {};
  closed = false;
  heard = new Map<string, (m: { data: string; lastEventId: string }) => void>();
  constructor(readonly url: string) {
    Source.made.push(this);
  }
  addEventListener(kind: string, on: (m: { data: string; lastEventId: string }) => void) {
    this.heard.set(kind, on);
  }
  close() {
    this.closed = true;
  }
}

beforeEach(() => {
  Source.made = [];
  vi.stubGlobal('EventSource', Source);
  vi.useFakeTimers();
});
afterEach(() => {
  showApplication('');
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test('what is no event is left out', () => {
  expect(read('application', '{')).toBeUndefined();
  expect(read('application', 'null')).toBeUndefined();
  expect(read('application', '{"kind":"application","id":"a"}')).toEqual({ kind: 'application', id: 'a' });
  expect(read('reset', '')).toEqual({ kind: 'reset', id: '' });
});

test('a refused stream is opened again after the last event', () => {
  const states: boolean[] = [];
  const stop = follow(
    '5',
    () => {},
    (live) => states.push(live),
  );
  const first = Source.made[0];
  first?.onopen();
  first?.heard.get('cluster')?.({ data: '{"kind":"cluster","id":"c"}', lastEventId: '9' });
  if (first) first.readyState = Source.CLOSED;
  first?.onerror();
  vi.advanceTimersByTime(1_000);
  expect(Source.made.map((s) => s.url)).toEqual([
    '/api/v1/stream?cursor=5&view=row',
    '/api/v1/stream?cursor=9&view=row',
  ]);
  expect(states.at(0)).toBe(true);
  expect(states.at(-1)).toBe(false);
  stop();
  expect(Source.made[1]?.closed).toBe(true);
});

test('UX-A11-6 five seconds of silence are no connection, though nobody has closed it', () => {
  const states: boolean[] = [];
  const events: string[] = [];
  const stop = follow(
    '5',
    (e) => events.push(e.kind),
    (live) => states.push(live),
  );
  const first = Source.made[0];
  first?.onopen();
  for (let i = 0; i < 5; i++) {
    vi.advanceTimersByTime(4_900);
    first?.heard.get('alive')?.({ data: '{"kind":"alive","id":""}', lastEventId: `1${i}` });
  }
  expect(states).not.toContain(false);
  expect(events).toEqual([]);
  vi.advanceTimersByTime(4_999);
  expect(states).not.toContain(false);
  vi.advanceTimersByTime(1);
  expect(states.at(-1)).toBe(false);
  expect(first?.closed).toBe(true);
  vi.advanceTimersByTime(1_000);
  expect(Source.made.map((s) => s.url)).toEqual([
    '/api/v1/stream?cursor=5&view=row',
    '/api/v1/stream?cursor=14&view=row',
  ]);
  // The hub takes the connection and says nothing: it is tried again, and again.
  vi.advanceTimersByTime(12_000);
  expect(Source.made).toHaveLength(4);
  expect(states.at(-1)).toBe(false);
  Source.made[3]?.onopen();
  expect(states.at(-1)).toBe(true);
  stop();
});

test('after the end nothing is opened', () => {
  const stop = follow(
    '5',
    () => {},
    () => {},
  );
  const first = Source.made[0];
  if (first) first.readyState = Source.CLOSED;
  first?.onerror();
  stop();
  vi.runAllTimers();
  expect(Source.made).toHaveLength(1);
});

test('UX-A11-6 for another application the stream is opened again after the last event, and is live all the while', () => {
  const states: boolean[] = [];
  const events: string[] = [];
  let asked = '&detail=a';
  const stop = follow(
    '5',
    (e) => events.push(e.id),
    (live) => states.push(live),
    () => asked,
  );
  const [first] = Source.made;
  first?.onopen();
  first?.heard.get('cluster')?.({ data: '{"kind":"cluster","id":"c"}', lastEventId: '9' });
  first?.heard.get('detail')?.({ data: '{"kind":"detail","id":"d"}', lastEventId: '9' });
  showApplication('argocd/a');
  vi.advanceTimersByTime(100);
  asked = '&detail=b';
  showApplication('argocd/b');
  vi.advanceTimersByTime(199);
  expect(Source.made).toHaveLength(1);
  vi.advanceTimersByTime(1);
  expect(Source.made.map((s) => s.url)).toEqual([
    '/api/v1/stream?cursor=5&view=row&detail=a',
    '/api/v1/stream?cursor=9&view=row&detail=b',
  ]);
  expect(Source.made.map((s) => s.closed)).toEqual([true, false]);
  first?.heard.get('cluster')?.({ data: '{"kind":"cluster","id":"late"}', lastEventId: '10' });
  first?.onerror();
  vi.advanceTimersByTime(4_999);
  expect(Source.made).toHaveLength(2);
  expect(states).not.toContain(false);
  expect(events).toEqual(['c', 'd']);
  // A stream that is opened for another application and does not answer is broken like any other.
  vi.advanceTimersByTime(1);
  expect(states.at(-1)).toBe(false);
  stop();
  showApplication('argocd/c');
  vi.runAllTimers();
  expect(Source.made).toHaveLength(2);
});
