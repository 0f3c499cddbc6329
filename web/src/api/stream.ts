import type { StreamEvent } from './client';

const kinds: StreamEvent['kind'][] = [
  'application',
  'resources',
  'operation',
  'cluster',
  'repository',
  'project',
  'reset',
];

function isEvent(value: unknown): value is StreamEvent {
  return typeof value === 'object' && value !== null && 'kind' in value && 'id' in value;
}

const again = 3_000;

/**
 * Follows the changes of the tenant from a cursor. The browser reconnects by
 * itself after a broken connection and continues after the last event that it
 * got; after an answer that is no stream it gives up, so that this tries again.
 */
export function follow(cursor: string, on: (event: StreamEvent) => void, state: (live: boolean) => void): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = cursor;
  const hear = (message: MessageEvent<string>, kind: StreamEvent['kind']) => {
    if (message.lastEventId) last = message.lastEventId;
    const event = read(kind, message.data);
    if (event) on(event);
  };
  const open = () => {
    const opened = new EventSource(`/api/v1/stream?cursor=${encodeURIComponent(last)}`);
    source = opened;
    opened.onopen = () => state(true);
    opened.onerror = () => {
      state(false);
      if (opened.readyState === EventSource.CLOSED) timer = setTimeout(open, again);
    };
    for (const kind of kinds) opened.addEventListener(kind, (message) => hear(message, kind));
  };
  open();
  return () => {
    clearTimeout(timer);
    source?.close();
  };
}

/** One event, or nothing for one that this console does not understand. */
export function read(kind: StreamEvent['kind'], data: string): StreamEvent | undefined {
  if (kind === 'reset') return { kind, id: '' };
  try {
    const parsed: unknown = JSON.parse(data);
    return isEvent(parsed) ? { ...parsed, kind } : undefined;
  } catch {
    return undefined;
  }
}
