import type { LogEntry } from '../../../api/client';
import { HubError } from '../../../api/errors';

/** How a log ended: whether the hub said that it was the last line. */
export interface End {
  complete: boolean;
}

function parse(text: string): LogEntry | undefined {
  try {
    const value: LogEntry = JSON.parse(text);
    return value;
  } catch {
    return undefined;
  }
}

/** Takes text in pieces, and returns the entries of the lines that are whole. */
export function entriesOf(): (piece: string) => LogEntry[] {
  let rest = '';
  return (piece) => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    return lines.flatMap((line) => (line ? (parse(line) ?? []) : []));
  };
}

/**
 * Reads a log and hands over what comes, until its end. It throws when the hub
 * refuses it; a connection that breaks is an end that is not complete.
 */
export async function readLog(address: string, take: (entries: LogEntry[]) => void, signal: AbortSignal): Promise<End> {
  const response = await fetch(address, {
    headers: { Accept: 'application/x-ndjson', 'X-Capstan-Client': 'console' },
    credentials: 'same-origin',
    signal,
  });
  if (!response.ok) throw await HubError.from(response);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return { complete: true };
  const split = entriesOf();
  let complete = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { complete };
      const entries = split(value);
      complete ||= entries.some((e) => e.last === true);
      if (entries.length > 0) take(entries);
    }
  } catch {
    if (signal.aborted) throw new DOMException('The log is no longer read.', 'AbortError');
    return { complete: false };
  }
}
