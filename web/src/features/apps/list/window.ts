import { useQueries } from '@tanstack/react-query';
import { useCallback, useEffect, useState } from 'react';
import { listQueries, type Row, type Spec } from './api';

/** Which windows of a size lie between two rows. */
export function windowsOf(first: number, last: number, size: number): number[] {
  const out: number[] = [];
  for (let i = Math.floor(Math.max(0, first) / size); i <= Math.floor(Math.max(0, last) / size); i++) out.push(i);
  return out;
}

/** The rows of a list between two places: those that are read already, by place. */
export function useWindow(spec: Spec, first: number, last: number): (index: number) => Row | undefined {
  const wanted = windowsOf(first, last, spec.size);
  const parts = useQueries({ queries: wanted.map((i) => listQueries.page(spec, i)) });
  return (index) => parts[wanted.indexOf(Math.floor(index / spec.size))]?.data?.rows[index % spec.size];
}

/** Moves the focus along the names of a list, also to those that are not drawn yet. */
export function useArrows(scrollTo: (index: number) => void, count: number, across: number) {
  const [wanted, setWanted] = useState<{ index: number; list: HTMLElement }>();
  useEffect(() => {
    if (!wanted) return;
    let tries = 0;
    let frame = 0;
    const reach = () => {
      const link = wanted.list.querySelector<HTMLElement>(`[data-index="${wanted.index}"] a`);
      if (link) link.focus();
      else if (tries++ < 60) frame = requestAnimationFrame(reach);
    };
    frame = requestAnimationFrame(reach);
    return () => cancelAnimationFrame(frame);
  }, [wanted]);
  return useCallback(
    (e: React.KeyboardEvent<HTMLElement>) => {
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target instanceof HTMLInputElement && e.target.type !== 'checkbox'))
        return;
      const at = document.activeElement?.closest('[data-index]')?.getAttribute('data-index');
      const here = at == null ? -1 : Number(at);
      if (e.key === 'x' && at != null) {
        e.currentTarget.querySelector<HTMLElement>(`[data-index="${at}"] input[type="checkbox"]`)?.click();
        return;
      }
      const steps: Record<string, number> = {
        ArrowDown: here + across,
        j: here + across,
        ArrowUp: here - across,
        k: here - across,
        Home: 0,
        End: count - 1,
        ...(across > 1 ? { ArrowRight: here + 1, ArrowLeft: here - 1 } : {}),
      };
      const next = steps[e.key];
      if (next === undefined || count === 0) return;
      e.preventDefault();
      const index = Math.min(count - 1, Math.max(0, here < 0 && e.key !== 'End' ? 0 : next));
      scrollTo(index);
      setWanted({ index, list: e.currentTarget });
    },
    [scrollTo, count, across],
  );
}
