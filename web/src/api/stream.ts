import type { StreamEvent } from './client';
import { watchShown } from './detail';
import { under } from './root';

const kinds: StreamEvent['kind'][] = [
  'application',
  'applicationset',
  'resources',
  'operation',
  'cluster',
  'repository',
  'project',
  'detail',
  'reset',
  'alive',
];

function isEvent(value: unknown): value is StreamEvent {
  return typeof value === 'object' && value !== null && 'kind' in value && 'id' in value;
}

const again = 1_000;

/** How long another application is shown before the stream is opened for it: people go through pages quickly. */
const swapAfter = 200;

/** After this much silence the stream counts as broken. The hub says something every two seconds. */
export const silence = 5_000;

/**
 * Follows the changes of the tenant from a cursor. A stream that breaks, or from
 * which nothing comes for some seconds, is opened again after the last event:
 * a hub that hangs keeps its connections open. It is opened again as well, and
 * counts as live meanwhile, when another application is shown. details says,
 * whenever a stream is opened, what else to ask for. The state is told when it
 * changes and with each sign of life.
 */
export function follow(
  cursor: string,
  on: (event: StreamEvent) => void,
  state: (live: boolean) => void,
  details: () => string = () => '',
): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let swap: ReturnType<typeof setTimeout> | undefined;
  let last = cursor;
  const reopen = () => {
    source?.close();
    state(false);
    clearTimeout(timer);
    timer = setTimeout(open, again);
  };
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(reopen, silence);
    state(true);
  };
  const hear = (message: MessageEvent<string>, kind: StreamEvent['kind']) => {
    heard();
    if (message.lastEventId) last = message.lastEventId;
    const event = read(kind, message.data);
    if (event && event.kind !== 'alive') on(event);
  };
  const open = () => {
    source?.close();
    clearTimeout(timer);
    clearTimeout(swap);
    const opened = new EventSource(under(`/api/v1/stream?cursor=${encodeURIComponent(last)}&view=row${details()}`));
    source = opened;
    timer = setTimeout(reopen, silence);
    const ifCurrent =
      <T>(then: (arg: T) => void) =>
      (arg: T) => {
        if (source === opened) then(arg);
      };
    opened.onopen = ifCurrent(heard);
    opened.onerror = ifCurrent(reopen);
    for (const kind of kinds)
      opened.addEventListener(
        kind,
        ifCurrent((message) => hear(message, kind)),
      );
  };
  open();
  const unwatch = watchShown(() => {
    clearTimeout(swap);
    swap = setTimeout(open, swapAfter);
  });
  return () => {
    unwatch();
    clearTimeout(swap);
    clearTimeout(timer);
    source?.close();
    source = undefined;
  };
}

/** One event, or nothing for one that this console does not understand. */
export function read(kind: StreamEvent['kind'], data: string): StreamEvent | undefined {
  if (kind === 'reset' || kind === 'alive') return { kind, id: '' };
  try {
    const parsed: unknown = JSON.parse(data);
    return isEvent(parsed) ? { ...parsed, kind } : undefined;
  } catch {
    return undefined;
  }
}
