import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import type { StreamEvent } from '../api/client';
import { follow } from '../api/stream';
import { appsQuery } from '../features/apps/api';
import { applyChange, keyOf } from '../features/apps/model';

/**
 * Keeps everything on the screen fresh from the change stream: the list is
 * folded, other screens are read again. Bursts are taken once per frame.
 */
export function useLive(cursor: string | undefined): boolean {
  const client = useQueryClient();
  const [live, setLive] = useState(false);
  useEffect(() => {
    if (cursor === undefined) return;
    let waiting: StreamEvent[] = [];
    let frame = 0;
    const flush = () => {
      frame = 0;
      const events = waiting;
      waiting = [];
      if (events.some((e) => e.kind === 'reset')) {
        void client.invalidateQueries();
        return;
      }
      client.setQueryData(appsQuery.queryKey, (held) =>
        held ? { ...held, items: events.reduce(applyChange, held.items) } : held,
      );
      const touched = new Set<string>();
      for (const e of events) {
        if (e.kind === 'cluster') void client.invalidateQueries({ queryKey: ['clusters'] });
        if (e.kind === 'project') {
          void client.invalidateQueries({ queryKey: ['projects'] });
          void client.invalidateQueries({ predicate: (q) => q.queryKey.at(-1) === 'windows' });
        }
        if (e.kind === 'repository') void client.invalidateQueries({ queryKey: ['repositories'] });
        if (e.application) touched.add(keyOf(e.application));
        else if (e.namespace && e.name) touched.add(`${e.namespace}/${e.name}`);
      }
      for (const key of touched) {
        const [namespace = '', name = ''] = key.split('/');
        void client.invalidateQueries({ queryKey: ['app', namespace, name] });
      }
    };
    const stop = follow(
      cursor,
      (event) => {
        waiting.push(event);
        frame ||= requestAnimationFrame(flush);
      },
      setLive,
    );
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [client, cursor]);
  return live;
}
