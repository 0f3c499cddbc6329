import { describe, expect, test } from 'vitest';
import { type LogOptions, logAddress, readLine, readOptions, writeOptions } from './options';
import { commonKeys, everything, fieldsOf, LogStore, levelOf } from './store';
import { entriesOf } from './stream';

const at = (i: number) => `2026-01-01T00:00:${String(i).padStart(2, '0')}Z`;
const line = (content: string, more = {}) => ({
  content,
  podName: 'web-1',
  container: 'app',
  timeStamp: at(1),
  ...more,
});
const texts = (s: LogStore) => s.shown.map((l) => l.text);

function filled(...contents: string[]) {
  const store = new LogStore();
  store.add(contents.map((c) => line(c)));
  return store;
}

describe('LogStore', () => {
  test('UI-13 filter, inverted filter and case', () => {
    const store = filled('GET /healthz', 'ERROR db', 'get /orders');
    store.look({ ...everything, filter: 'get' });
    expect(texts(store)).toEqual(['GET /healthz', 'get /orders']);
    store.look({ ...everything, filter: 'get', matchCase: true });
    expect(texts(store)).toEqual(['get /orders']);
    store.look({ ...everything, filter: '/healthz', invert: true });
    expect(texts(store)).toEqual(['ERROR db', 'get /orders']);
    // What comes later is filtered as well.
    store.add([line('GET /healthz'), line('new')]);
    expect(texts(store)).toEqual(['ERROR db', 'get /orders', 'new']);
  });

  test('UX-LOG-2(part) the search finds places among what is shown, also in lines that come later', () => {
    const store = filled('a one', 'b', 'a two');
    store.look({ ...everything, find: 'a ' });
    expect(store.matches).toEqual([0, 2]);
    store.add([line('x'), line('a three')]);
    expect(store.matches).toEqual([0, 2, 4]);
    store.look({ ...everything, find: 'a', filter: 't' });
    expect(texts(store)).toEqual(['a two', 'a three']);
    expect(store.matches).toEqual([0, 1]);
    store.look({ ...everything, find: '^a t', regex: true });
    expect(store.matches).toEqual([2, 4]);
    store.look({ ...everything, find: '(', regex: true });
    expect(store.matches).toEqual([]);
  });

  test('a line in parts is one line, colours of terminals are left out', () => {
    const store = new LogStore();
    store.add([
      line('one, ', { partial: true }),
      line('two, ', { partial: true }),
      line('\u001b[31mthree\u001b[0m'),
      line('next'),
    ]);
    expect(texts(store)).toEqual(['one, two, three', 'next']);
  });

  test('SEC-H9 a line can neither change a terminal that it is copied to, nor hide in the page', () => {
    const store = filled(
      'a\u001b]8;;https://evil.example.com\u001b\\click\u001b]8;;\u001b\\',
      'a\u001b]0;owned\u0007',
      'a\u009b31m',
      'a\rb\b\u007f',
      'a\u202egnp.exe',
      'a\tb',
    );
    const shown = texts(store);
    const controls = [0x1b, 0x07, 0x9b, 0x0d, 0x08, 0x7f, 0x202e].map((c) => String.fromCharCode(c));
    for (const text of shown) expect(controls.filter((c) => text.includes(c))).toEqual([]);
    expect(shown[3]).toBe('a\u240db\u2408\u2421');
    expect(shown[5]).toBe('a\tb');
    store.look({ ...everything, filter: 'evil.example.com' });
    expect(store.shown).toHaveLength(1);
  });

  test('UX-LOG-3(part) lines that are missing, and what is wrong with a log, are said between lines', () => {
    const store = new LogStore();
    store.add([line('a'), line('b', { skipped: 1200 }), { notice: 'the container has ended' }]);
    expect(store.shown.map((l) => [l.notice, l.text])).toEqual([
      [false, 'a'],
      [true, '1,200 lines are missing here: this reader was too slow.'],
      [false, 'b'],
      [true, 'the container has ended'],
    ]);
  });

  test('UX-LOG-1(part) pods are counted and can be hidden', () => {
    const store = new LogStore();
    store.add([line('a'), line('b', { podName: 'web-2' }), line('c', { podName: 'web-2' })]);
    expect([...store.pods]).toEqual([
      ['web-1', 1],
      ['web-2', 2],
    ]);
    store.look({ ...everything, hidden: ['web-2'] });
    expect(texts(store)).toEqual(['a']);
  });

  test('more than a million lines lose the oldest', () => {
    const store = new LogStore();
    const many = Array.from({ length: 100_000 }, (_, i) => line(`l${i}`));
    for (let i = 0; i < 11; i++) store.add(many);
    expect(store.count).toBe(1_100_000);
    expect(store.count - store.gone).toBe(store.shown.length);
    expect(store.shown.length).toBeLessThanOrEqual(1_000_000);
    expect(store.shown.at(-1)?.n).toBe(1_099_999);
  });
});

test.each([
  ['{"level":"error","msg":"x"}', 'error'],
  ['{"severity":"WARNING"}', 'warn'],
  ['{"err":null,"level":"info"}', 'info'],
  ['{"msg":"an error"}', ''],
  ['2026 FATAL cannot', 'error'],
  ['WARN slow', 'warn'],
  ['terror is no level', ''],
  ['hello', ''],
])('the level of %s', (text, level) => expect(levelOf(text)).toBe(level));

test('UX-LOG-2(part) lines of JSON have fields, and the common ones are columns', () => {
  expect(fieldsOf('{"a":"x","b":{"c":1}}')).toEqual([
    ['a', 'x'],
    ['b', '{"c":1}'],
  ]);
  expect(fieldsOf('[1]')).toBeUndefined();
  expect(fieldsOf('{broken')).toBeUndefined();
  const store = filled(
    '{"level":"info","msg":"a"}',
    '{"level":"info","msg":"b","once":1}',
    'text',
    '{"level":"warn","msg":"c"}',
  );
  expect(commonKeys(store.shown)).toEqual(['level', 'msg']);
});

test('a stream is cut anywhere', () => {
  const whole = '{"content":"a"}\n\n{"content":"ü"}\nbroken\n{"last":true}\n';
  for (let cut = 0; cut <= whole.length; cut++) {
    const split = entriesOf();
    const got = [...split(whole.slice(0, cut)), ...split(whole.slice(cut))];
    expect(got).toEqual([{ content: 'a' }, { content: 'ü' }, { last: true }]);
  }
});

describe('options', () => {
  test('UX-NAV-10(part) the address has all of them, and reads back what it wrote', () => {
    const all: LogOptions = {
      container: 'app',
      since: 900,
      tail: 0,
      previous: true,
      follow: false,
      find: 'a&b=c',
      filter: 'x y',
      invert: true,
      matchCase: true,
      regex: true,
      level: 'error',
      times: false,
      wrap: true,
      columns: ['level', 'msg'],
      hidden: ['web-1'],
      line: `${at(1)} web-1 app`,
    };
    expect(readOptions(writeOptions(all))).toEqual(all);
    expect(writeOptions(readOptions(undefined))).toBe('');
    expect(readOptions('since=-1&tail=x&level=loud&times=maybe')).toEqual(readOptions(''));
  });

  test('UI-13 the hub is asked for what is shown', () => {
    const target = {
      namespace: 'argocd',
      app: 'shop',
      object: { group: 'apps', kind: 'Deployment', namespace: 'n', name: 'web' },
    };
    const query = (o: string, how = {}) =>
      Object.fromEntries(new URL(logAddress(target, readOptions(o), how), 'http://h').searchParams);
    const object = { group: 'apps', kind: 'Deployment', resourceName: 'web', resourceNamespace: 'n' };
    expect(query('container=app&since=60')).toEqual({
      ...object,
      container: 'app',
      sinceSeconds: '60',
      tailLines: '1000',
      follow: 'true',
    });
    expect(query('previous=yes&tail=0')).toEqual({ ...object, previous: 'true' });
    expect(query('tail=0&filter=x&invert=yes', { download: true })).toEqual({
      ...object,
      download: 'true',
      timestamps: 'true',
      filter: '!x',
    });
    expect(query('', { from: at(2) })).toEqual({ ...object, sinceTime: at(2), follow: 'true' });
    expect(query(`line=${at(1)} p c`)).toEqual({
      ...object,
      sinceTime: '2025-12-31T23:59:01.000Z',
      untilTime: '2026-01-01T00:01:01.000Z',
    });
    expect(readLine('nonsense')).toBeUndefined();
  });
});
