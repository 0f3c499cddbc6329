import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type Ended, type Events, endOf, Session, sessionAddress } from './session';

const place = {
  app: { namespace: 'argocd', name: 'shop' },
  namespace: 'web',
  pod: 'web-1',
  container: 'app',
  shell: '',
};
const size = { rows: 24, cols: 80 };

test('UI-14 the address of a session names pod, container, size and the shell that was chosen', () => {
  const first = new URL(sessionAddress(place, size, 'https://hub.example.com/applications/argocd/shop?x#y'));
  expect(first.href.split('?')[0]).toBe('wss://hub.example.com/api/v1/applications/argocd/shop/terminal');
  expect(Object.fromEntries(first.searchParams)).toEqual({
    podName: 'web-1',
    resourceNamespace: 'web',
    container: 'app',
    rows: '24',
    cols: '80',
  });
  const chosen = new URL(sessionAddress({ ...place, shell: 'sh' }, size, 'http://hub/')).searchParams;
  expect([chosen.getAll('command'), chosen.get('tty')]).toEqual([['sh'], 'true']);
});

test('UI-14 the end of a session has a code, or a reason', () => {
  expect(endOf({ exited: true })).toEqual({ code: 0, reason: '', fix: '' });
  expect(endOf({ exited: true, exitCode: 7 }).code).toBe(7);
  expect(endOf({ exited: false, message: 'the right is gone', fix: 'ask an admin' })).toEqual({
    reason: 'the right is gone',
    fix: 'ask an admin',
  });
  expect(endOf({ exited: false }).reason).not.toBe('');
});

/** What the browser's WebSocket does, by hand. */
class Socket {
  static readonly OPEN = 1;
  static last: Socket;
  static made = 0;
  readyState = 1;
  binaryType = '';
  sent: Uint8Array[] = [];
  onopen = () => {};
  onmessage = (_: { data: unknown }) => {};
  onclose = (_: { reason: string }) => {};
  constructor(
    readonly address: string,
    readonly protocol: string,
  ) {
    Socket.last = this;
    Socket.made++;
  }
  send(bytes: Uint8Array) {
    this.sent.push(bytes);
  }
  close() {
    this.readyState = 3;
  }
  says(channel: number, text: string) {
    const bytes = new TextEncoder().encode(`x${text}`);
    bytes[0] = channel;
    const copy = new ArrayBuffer(bytes.length);
    new Uint8Array(copy).set(bytes);
    this.onmessage({ data: copy });
  }
}

const heard = (): Events & { out: string; ends: Ended[] } => {
  const all = {
    out: '',
    ends: [] as Ended[],
    started: vi.fn(),
    output: (b: Uint8Array) => {
      all.out += new TextDecoder().decode(b);
    },
    ended: (e: Ended) => {
      all.ends.push(e);
    },
  };
  return all;
};

beforeEach(() => {
  Socket.made = 0;
  vi.stubGlobal('WebSocket', Socket);
});
afterEach(() => vi.unstubAllGlobals());

test('UI-14 output, input in pieces, size, and one end', () => {
  const events = heard();
  const session = new Session(place, size, events);
  const socket = Socket.last;
  expect(socket.protocol).toBe('capstan.terminal.v1');
  socket.onopen();
  socket.says(5, '{"pod":"web-1","container":"app","command":["sh"]}');
  socket.says(1, 'out');
  socket.says(2, 'err');
  expect([events.out, vi.mocked(events.started).mock.calls.length]).toEqual(['outerr', 1]);
  session.type('é');
  session.type('x'.repeat(70_000));
  session.resize({ rows: 1, cols: 2 });
  session.bytes('\xff');
  expect([...(socket.sent[0] ?? [])]).toEqual([0, 0xc3, 0xa9]);
  expect(socket.sent.slice(1, 4).map((b) => b.length - 1)).toEqual([32768, 32768, 4464]);
  expect(new TextDecoder().decode(socket.sent[4])).toBe('\x04{"rows":1,"cols":2}');
  expect([...(socket.sent[5] ?? [])]).toEqual([0, 255]);
  socket.says(3, '{"exited":true,"exitCode":3}');
  socket.onclose({ reason: '' });
  expect(events.ends).toEqual([{ code: 3, reason: '', fix: '' }]);
});

test('UI-14 a connection that is lost is an end with a reason, and no other session begins', () => {
  const events = heard();
  new Session(place, size, events);
  Socket.last.onopen();
  Socket.last.onclose({ reason: '' });
  expect(events.ends).toEqual([{ reason: 'the connection to the hub was lost', fix: '' }]);
  expect(Socket.made).toBe(1);
});

test('UI-14 what one has ended oneself says nothing more', () => {
  const events = heard();
  const session = new Session(place, size, events);
  Socket.last.onopen();
  session.close();
  Socket.last.says(1, 'late');
  Socket.last.onclose({ reason: 'x' });
  expect([events.out, events.ends]).toEqual(['', []]);
});
