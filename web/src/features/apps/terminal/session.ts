import { api } from '../../../api/client';
import { HubError, words } from '../../../api/errors';
import { under } from '../../../api/root';
import type { components } from '../../../api/schema.gen';
import { t } from '../../../texts';
import type { AppKey } from '../api';

export type Started = components['schemas']['TerminalStarted'];
type End = components['schemas']['TerminalEnd'];

/** Where a session runs. */
export interface Place {
  app: AppKey;
  namespace: string;
  pod: string;
  container: string;
  /** Empty: the first of the tenant's shells that the container has. */
  shell: string;
}

export interface Size {
  rows: number;
  cols: number;
}

/** How a session has ended. */
export interface Ended {
  /** The shell has ended by itself, with this code. */
  code?: number;
  /** Otherwise: why it was ended. */
  reason: string;
  fix: string;
}

/** What happens in a session. */
export interface Events {
  started: (s: Started) => void;
  output: (bytes: Uint8Array) => void;
  ended: (e: Ended) => void;
}

const protocol = 'capstan.terminal.v1';
const channel = { stdin: 0, stdout: 1, stderr: 2, end: 3, size: 4, started: 5 } as const;
/** Bytes of input in one message. */
const most = 32 << 10;

/** The parameters of a session. */
function query(place: Place, size: Size) {
  return {
    podName: place.pod,
    resourceNamespace: place.namespace,
    container: place.container,
    ...(place.shell ? { command: [place.shell], tty: true } : {}),
    rows: size.rows,
    cols: size.cols,
  };
}

/** The address of a session, for a WebSocket of the hub of a page. */
export function sessionAddress(place: Place, size: Size, page: string): string {
  const { command, ...rest } = { command: [] as string[], ...query(place, size) };
  const parameters = new URLSearchParams(Object.entries(rest).map(([k, v]): [string, string] => [k, String(v)]));
  for (const word of command) parameters.append('command', word);
  const path = [place.app.namespace, place.app.name].map(encodeURIComponent).join('/');
  const address = new URL(under(`/api/v1/applications/${path}/terminal`), page);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  address.search = parameters.toString();
  return address.href;
}

/** How a session has ended, from the hub's last message. */
export function endOf(e: End): Ended {
  if (e.exited) return { code: e.exitCode ?? 0, reason: '', fix: '' };
  return { reason: e.message || t('the hub has ended the session'), fix: e.fix ?? '' };
}

/** A session in a container, from its beginning to its only end: it never begins again by itself. */
export class Session {
  private readonly socket: WebSocket;
  private readonly decoder = new TextDecoder();
  private readonly encoder = new TextEncoder();
  private open = false;
  private over = false;

  constructor(
    private readonly place: Place,
    private readonly size: Size,
    private readonly events: Events,
  ) {
    this.socket = new WebSocket(sessionAddress(place, size, window.location.href), protocol);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => {
      this.open = true;
    };
    this.socket.onmessage = (m) => this.receive(m.data);
    this.socket.onclose = (c) => void this.closed(c.reason);
  }

  /** Sends what was typed. */
  type(text: string) {
    this.send(this.encoder.encode(text));
  }

  /** Sends bytes that are no text, such as where the mouse is. */
  bytes(text: string) {
    this.send(Uint8Array.from(text, (c) => c.charCodeAt(0)));
  }

  resize(size: Size) {
    this.message(channel.size, this.encoder.encode(JSON.stringify(size)));
  }

  /** Ends the session; nothing is said of it any more. */
  close() {
    this.over = true;
    this.socket.close();
  }

  private send(bytes: Uint8Array) {
    for (let at = 0; at < bytes.length; at += most) this.message(channel.stdin, bytes.subarray(at, at + most));
  }

  private message(to: number, bytes: Uint8Array) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    const all = new Uint8Array(bytes.length + 1);
    all[0] = to;
    all.set(bytes, 1);
    this.socket.send(all);
  }

  private receive(data: unknown) {
    if (!(data instanceof ArrayBuffer) || data.byteLength === 0 || this.over) return;
    const bytes = new Uint8Array(data);
    const rest = bytes.subarray(1);
    switch (bytes[0]) {
      case channel.stdout:
      case channel.stderr:
        this.events.output(rest);
        break;
      case channel.started: {
        const started: Started = JSON.parse(this.decoder.decode(rest));
        this.events.started(started);
        break;
      }
      case channel.end: {
        const end: End = JSON.parse(this.decoder.decode(rest));
        this.finish(endOf(end));
      }
    }
  }

  private async closed(reason: string) {
    if (this.over) return;
    if (this.open) {
      this.finish({ reason: reason || t('the connection to the hub was lost'), fix: '' });
      return;
    }
    // A browser does not tell why a WebSocket was refused; the hub does.
    const ended = await refusal(this.place, this.size);
    this.finish(ended);
  }

  private finish(ended: Ended) {
    if (this.over) return;
    this.over = true;
    this.socket.close();
    this.events.ended(ended);
  }
}

/** Why the hub opens no session: what it answers to a request that asks for no WebSocket. */
async function refusal(place: Place, size: Size): Promise<Ended> {
  try {
    await api.GET('/api/v1/applications/{namespace}/{name}/terminal', {
      params: { path: place.app, query: query(place, size) },
    });
  } catch (error) {
    if (!(error instanceof HubError) || error.message !== 'this address is a WebSocket') {
      const said = words(error);
      return { reason: said.title, fix: said.fix ?? '' };
    }
  }
  return {
    reason: t('the connection could not be opened'),
    fix: t('A proxy between you and the hub may not let WebSockets through.'),
  };
}
