import { type RefObject, useEffect, useRef } from 'react';

/**
 * A ref of a list of tabs that scrolls the chosen one into sight: where it is narrow, not all tabs fit. It does so
 * again when another is chosen, or when their widths change, for which what stands in them is given.
 */
export function useChosenInSight(chosen: string, ...counts: unknown[]): RefObject<HTMLDivElement | null> {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = list.current;
    const tab = box?.querySelector<HTMLElement>('[role=tab][aria-selected=true]');
    if (!box || !tab) return;
    const outside =
      tab.offsetLeft < box.scrollLeft || tab.offsetLeft + tab.offsetWidth > box.scrollLeft + box.clientWidth;
    if (outside) box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;
  }, [chosen, counts.join()]);
  return list;
}
