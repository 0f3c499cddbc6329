import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import type { Application, StreamEvent } from '../api/client';
import { follow } from '../api/stream';
import { appFilters, appQueries } from '../features/apps/api';
import { applyChange, keyOf } from '../features/apps/model';
import { clusterQueries } from '../features/clusters/api';
import { projectQueries } from '../features/projects/api';
import { repositoryQueries } from '../features/repositories/api';

/** How the connection to the hub is, and as of when what is shown is. */
export interface Liveness {
  live: boolean;
  asOf: number | undefined;
}

const apps = appQueries.list().queryKey;

/** What an agent has reported counts for a minute after it has gone; then everything is read again. */
const expiry = 65_000;

/**
 * Keeps everything on the screen fresh from the change stream: the list is
 * folded, other screens are read again. Bursts are taken once per frame.
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
    const refresh = () => {
      void client.invalidateQueries({ queryKey: apps });
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
      client.setQueryData(apps, (held) => (held ? { ...held, items: events.reduce(applyChange, held.items) } : held));
      const touched = new Set<string>();
      if (events.some((e) => moved(e, client.getQueryData(apps)?.items ?? []))) {
        void refresh();
        clearTimeout(expired);
        expired = setTimeout(refresh, expiry);
      }
      for (const e of events) {
        if (e.kind === 'cluster') void client.invalidateQueries(clusterQueries.list());
        if (e.kind === 'project') {
          void client.invalidateQueries(projectQueries.list());
          void client.invalidateQueries(appFilters.windows());
        }
        if (e.kind === 'repository') void client.invalidateQueries(repositoryQueries.list());
        if (e.application) touched.add(keyOf(e.application));
        else if (e.namespace && e.name) touched.add(`${e.namespace}/${e.name}`);
      }
      for (const key of touched) {
        const [namespace = '', name = ''] = key.split('/');
        void client.invalidateQueries(appFilters.one({ namespace, name }));
      }
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
    );
    return () => {
      stop();
      clearTimeout(expired);
      cancelAnimationFrame(frame);
    };
  }, [client, cursor]);
  return { live, asOf: heard.current };
}

/** Whether a cluster's agent has come or gone, so that what is held of its applications is another. */
export function moved(e: StreamEvent, apps: Application[]): boolean {
  const cluster = e.kind === 'cluster' ? e.cluster : undefined;
  if (!cluster) return false;
  return apps.some(
    (a) => a.status?.capstan?.cluster === cluster.name && a.status.capstan.connection !== cluster.connection,
  );
}
