import { useCallback, useState } from 'react';

/** In pixels. */
const least = 480;
const most = 960;
const stored = 'capstan.panel.width';

/** A width that a panel may have, from what was asked for; something that is no number is the least. */
export function panelWidth(asked: number): number {
  return Number.isFinite(asked) ? Math.round(Math.min(Math.max(asked, least), most)) : least;
}

/** The width of the panel, as this browser had it last. */
export function usePanelWidth() {
  const [value, setValue] = useState(() => panelWidth(Number(localStorage.getItem(stored) || least)));
  const set = useCallback((asked: number) => {
    const next = panelWidth(asked);
    setValue(next);
    localStorage.setItem(stored, String(next));
    document.documentElement.style.setProperty('--panel-width', `${next}px`);
  }, []);
  return { value, set, least, most };
}
