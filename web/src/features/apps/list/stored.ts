import { useQuery } from '@tanstack/react-query';
import { useCallback, useMemo, useSyncExternalStore } from 'react';
import { meQuery } from '../../../api/session';

const changed = 'capstan-stored';

const subscribe = (heard: () => void) => {
  window.addEventListener('storage', heard);
  window.addEventListener(changed, heard);
  return () => {
    window.removeEventListener('storage', heard);
    window.removeEventListener(changed, heard);
  };
};

/**
 * Something that this browser remembers for who is signed in, such as favourites.
 * What it holds is read by a function that makes sense of anything, and stays the same value until it changes.
 */
export function useStored<T>(name: string, read: (value: unknown) => T): [T, (value: T) => void] {
  const me = useQuery(meQuery).data;
  const key = `capstan/${me?.tenant ?? ''}/${me?.username ?? ''}/${name}`;
  const raw = useSyncExternalStore(subscribe, () => fetched(key));
  const write = useCallback(
    (value: T) => {
      try {
        window.localStorage.setItem(key, JSON.stringify(value));
      } catch {
        // A browser that keeps nothing forgets; the page goes on.
      }
      window.dispatchEvent(new Event(changed));
    },
    [key],
  );
  return [useMemo(() => read(parsed(raw)), [read, raw]), write];
}

function fetched(key: string): string | null {
  try {
    return window.localStorage.getItem(key);
  } catch {
    return null;
  }
}

function parsed(raw: string | null): unknown {
  try {
    return raw === null ? undefined : JSON.parse(raw);
  } catch {
    return undefined;
  }
}

/** Texts out of anything. */
export const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((v): v is string => typeof v === 'string') : [];

/** How many favourites there can be: their names make one query. */
export const mostFavourites = 50;

/** A view that somebody has saved: a name and what the address has. */
export interface Saved {
  name: string;
  q: string;
  sort: string;
  view: string;
}

export const savedViews = (value: unknown): Saved[] =>
  (Array.isArray(value) ? value : []).flatMap((v: unknown) => {
    const of = new Map(Object.entries(typeof v === 'object' && v !== null ? v : {}));
    const text = (name: string) => {
      const got = of.get(name);
      return typeof got === 'string' ? got : '';
    };
    return text('name') ? [{ name: text('name'), q: text('q'), sort: text('sort'), view: text('view') }] : [];
  });

/** How the list looks: what people choose once. */
export interface Looks {
  columns: string[];
  size: number;
  compact: boolean;
}

export const sizes = [50, 100, 200, 500];
export const usualColumns = ['health', 'why', 'drift', 'source', 'destination', 'changed'];

export function looks(value: unknown): Looks {
  const of = new Map(Object.entries(typeof value === 'object' && value !== null ? value : {}));
  const size = of.get('size');
  return {
    columns: of.has('columns') ? texts(of.get('columns')) : usualColumns,
    size: typeof size === 'number' && sizes.includes(size) ? size : 100,
    compact: of.get('compact') === true,
  };
}
