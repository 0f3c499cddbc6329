import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import type { Cluster, StreamEvent } from '../api/client';
import { type Details, detailed, shownApplication } from '../api/detail';
import { follow } from '../api/stream';
import { type AppKey, appFilters, appQueries, putDetails } from '../features/apps/api';
import { listFilters, patched, type RowPage } from '../features/apps/list/api';
import { setFilters } from '../features/apps/sets/keys';
import { clusterQueries } from '../features/clusters/api';
import { projectQueries } from '../features/projects/api';
import { repositoryQueries } from '../features/repositories/api';

/** How the connection to the hub is, and as of when what is shown is. */
export interface Liveness {
  live: boolean;
  asOf: number | undefined;
}

/** What an agent has reported counts for a minute after it has gone; then everything is read again. */
const expiry = 65_000;

/** How long after a change numbers and order of lists are read again, and how seldom at the most. */
const settle = 300;
const seldom = 2_000;

const keyOf = (name: string): AppKey => {
  const [namespace = '', bare = ''] = name.split('/');
  return { namespace, name: bare };
};

/**
 * Keeps everything on the screen fresh from the change stream: rows that are
 * shown are replaced, numbers and other screens are read again. Bursts are
 * taken once per frame.
 */
export function useLive(cursor: string | undefined): Liveness {
  const client = useQueryClient();
  const [live, setLive] = useState(false);
  const heard = useRef<number>(undefined);
  useEffect(() => {
    if (cursor === undefined) return;
    let waiting: StreamEvent[] = [];
    let frame = 0;
    let expired: ReturnType<typeof setTimeout> | undefined;
    let due: ReturnType<typeof setTimeout> | undefined;
    let read = 0;
    let of = ''; // whose details the stream brings
    let details: Details = {};
    const known = new Map(
      client.getQueryData(clusterQueries.list().queryKey)?.items.map((c) => [c.name, c.connection]),
    );
    const lists = () => {
      due ??= setTimeout(
        () => {
          due = undefined;
          read = Date.now();
          void client.invalidateQueries(listFilters.each());
          void client.invalidateQueries(setFilters.shown());
        },
        Math.max(settle, read + seldom - Date.now()),
      );
    };
    const refresh = () => {
      void client.invalidateQueries(listFilters.each());
      void client.invalidateQueries(appFilters.each());
    };
    const flush = () => {
      frame = 0;
      const events = waiting;
      waiting = [];
      if (events.some((e) => e.kind === 'reset')) {
        void client.invalidateQueries();
        return;
      }
      client.setQueriesData<RowPage>(listFilters.pages(), (held) => (held ? patched(held, events) : held));
      if (events.some((e) => e.kind === 'application')) lists();
      const touched = new Set<string>();
      if (events.filter((e) => moved(e, known)).length > 0) {
        void refresh();
        clearTimeout(expired);
        expired = setTimeout(refresh, expiry);
      }
      for (const e of events) {
        if (e.kind === 'detail') {
          const next = of === `${e.namespace}/${e.name}` && detailed(details, e);
          if (next) putDetails(client, keyOf(of), next);
          else touched.add(`${e.namespace}/${e.name}`);
          details = next || {};
          continue;
        }
        if (e.kind === 'cluster') void client.invalidateQueries(clusterQueries.list());
        if (e.kind === 'project') {
          void client.invalidateQueries(projectQueries.list());
          void client.invalidateQueries(appFilters.windows());
        }
        if (e.kind === 'applicationset') {
          void client.invalidateQueries(setFilters.each());
          continue;
        }
        if (e.kind === 'repository') void client.invalidateQueries(repositoryQueries.list());
        if (e.row) touched.add(`${e.row.namespace}/${e.row.name}`);
        else if (e.namespace && e.name) touched.add(`${e.namespace}/${e.name}`);
      }
      for (const key of touched) {
        const brought = key === of && details.application !== undefined;
        void client.invalidateQueries(appFilters[brought ? 'rest' : 'one'](keyOf(key)));
      }
    };
    /** What to ask a stream for that is opened now. What has come of the one before is taken first. */
    const ask = () => {
      cancelAnimationFrame(frame);
      if (frame) flush();
      of = shownApplication();
      details = { tree: client.getQueryData(appQueries.tree(keyOf(of)).queryKey) };
      return of && `&detail=${encodeURIComponent(of)}&tree=${details.tree?.tag ?? ''}`;
    };
    const stop = follow(
      cursor,
      (event) => {
        waiting.push(event);
        frame ||= requestAnimationFrame(flush);
      },
      (now) => {
        if (now) heard.current = Date.now();
        setLive(now);
      },
      ask,
    );
    return () => {
      stop();
      clearTimeout(expired);
      clearTimeout(due);
      cancelAnimationFrame(frame);
    };
  }, [client, cursor]);
  return { live, asOf: heard.current };
}

/** Whether a cluster's agent has come or gone, so that what is held of its applications is another. */
export function moved(e: StreamEvent, known: Map<string, Cluster['connection']>): boolean {
  const cluster = e.kind === 'cluster' ? e.cluster : undefined;
  if (!cluster) return false;
  const before = known.get(cluster.name);
  known.set(cluster.name, cluster.connection);
  return before !== cluster.connection;
}
