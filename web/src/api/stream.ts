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

/**
 * Follows the changes of the tenant from a cursor. The browser reconnects by
 * itself and continues after the last event that it got.
 */
export function follow(cursor: string, on: (event: StreamEvent) => void, state: (live: boolean) => void): () => void {
  const source = new EventSource(`/api/v1/stream?cursor=${encodeURIComponent(cursor)}`);
  source.onopen = () => state(true);
  source.onerror = () => state(false);
  for (const kind of kinds) {
    source.addEventListener(kind, (message) => {
      const parsed: unknown = kind === 'reset' ? { kind, id: '' } : JSON.parse(message.data);
      if (isEvent(parsed)) on({ ...parsed, kind });
    });
  }
  return () => source.close();
}
