import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import type { LogEntry } from '../../../api/client';
import { t } from '../../../texts';
import { type LogOptions, logAddress, type Target } from './options';
import { LogStore } from './store';
import { readLog } from './stream';

/** How reading goes. */
export interface Reading {
  state: 'reading' | 'ended' | 'interrupted' | 'failed';
  error: unknown;
}

/** So long, in milliseconds, lines are gathered before they are shown: faster than that nobody reads. */
const gather = 50;
/** Waits before reading goes on after a break, in milliseconds. */
const first = 1_000;
const longest = 15_000;

/** What of a log was read last, so that reading again repeats none of it. */
function newer(store: LogStore, last: { time: string; texts: Set<string> }) {
  return (entries: LogEntry[]) => {
    const fresh = entries.filter((e) => {
      if (!e.timeStamp || e.content === undefined) return true;
      if (last.time && e.timeStamp < last.time) return false;
      return !last.texts.has(`${e.timeStamp} ${e.podName}/${e.container} ${e.content}`);
    });
    for (const e of fresh) {
      if (!e.timeStamp || e.content === undefined) continue;
      const second = e.timeStamp.slice(0, 19);
      if (second > last.time.slice(0, 19)) last.texts.clear();
      if (e.timeStamp > last.time) last.time = e.timeStamp;
      last.texts.add(`${e.timeStamp} ${e.podName}/${e.container} ${e.content}`);
      if (last.texts.size > 20_000) last.texts.clear();
    }
    store.add(fresh);
  };
}

async function follow(
  target: Target,
  options: LogOptions,
  store: LogStore,
  say: (r: Reading) => void,
  signal: AbortSignal,
): Promise<void> {
  let waiting = false;
  const show = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      store.changed();
    }, gather);
  };
  const last = { time: '', texts: new Set<string>() };
  const following = options.follow && !options.previous && !options.line;
  for (let wait = first; ; wait = Math.min(wait * 2, longest)) {
    const before = last.time;
    // A first read has nothing to compare with; the rest of the work is for readers that begin again.
    const take =
      following && before
        ? newer(store, last)
        : (entries: LogEntry[]) => {
            store.add(entries);
            if (store.newest > last.time) last.time = store.newest;
          };
    say({ state: 'reading', error: undefined });
    const end = await readLog(
      logAddress(target, options, before ? { from: before } : {}),
      (entries) => {
        wait = first;
        take(entries);
        show();
      },
      signal,
    );
    store.changed();
    if (end.complete || !following) {
      say({ state: end.complete ? 'ended' : 'interrupted', error: undefined });
      return;
    }
    say({ state: 'interrupted', error: undefined });
    store.add([{ notice: t('The connection was lost here. Lines may be missing.') }]);
    store.changed();
    await pause(wait, signal);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new DOMException('The log is no longer read.', 'AbortError'));
    });
  });
}

/** Reads a log as long as it is shown, and what is shown of it. */
export function useLog(target: Target, options: LogOptions) {
  const store = useMemo(() => new LogStore(), []);
  const [reading, setReading] = useState<Reading>({ state: 'reading', error: undefined });
  const [attempt, setAttempt] = useState(0);
  useSyncExternalStore(store.subscribe, store.snapshot);
  // What is read depends on these alone; filters look at what was read.
  const source = logAddress(target, options);
  useEffect(() => {
    const stop = new AbortController();
    store.clear();
    follow(target, options, store, setReading, stop.signal).catch((error: unknown) => {
      if (!stop.signal.aborted) setReading({ state: 'failed', error });
    });
    return () => stop.abort();
  }, [source, attempt]);
  const { filter, invert, find, matchCase, regex, level } = options;
  const hidden = options.hidden.join(',');
  useEffect(() => {
    store.look({ filter, invert, find, matchCase, regex, level, hidden: hidden.split(',').filter(Boolean) });
  }, [store, filter, invert, find, matchCase, regex, level, hidden]);
  return { store, reading, again: () => setAttempt((n) => n + 1) };
}
