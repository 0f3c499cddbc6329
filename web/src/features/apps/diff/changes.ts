import { useEffect, useState } from 'react';
import { stringify } from 'yaml';
import type { ObjectDiff } from '../../../api/client';
import { referenceOf } from '../object/reference';
import { dangers } from './danger';
import { type Comparison, compare } from './lines';

/** One object that differs. */
export interface ObjectChange {
  id: string;
  object: ObjectDiff;
  sort: 'new' | 'changed' | 'deleted';
  dangers: string[];
}

/** The objects that differ, the dangerous ones first. */
export function changesOf(items: ObjectDiff[]): ObjectChange[] {
  const all = items.map(
    (object): ObjectChange => ({
      id: referenceOf(object),
      object,
      sort: !object.desired ? 'deleted' : !object.live ? 'new' : 'changed',
      dangers: dangers({ group: object.group, kind: object.kind, live: object.live, desired: object.desired }),
    }),
  );
  return all.sort((a, b) => Number(b.dangers.length > 0) - Number(a.dangers.length > 0));
}

/** Those whose kind, name, fields or sort have all words. */
export function found(changes: ObjectChange[], words: string): ObjectChange[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return changes;
  return changes.filter((c) => {
    const { kind, name, namespace = '', fields = [] } = c.object;
    const text = [kind, name, namespace, c.sort, ...fields].join(' ').toLowerCase();
    return wanted.every((w) => text.includes(w));
  });
}

const yaml = (object: unknown) =>
  object ? stringify(object, { sortMapEntries: true, lineWidth: 0, aliasDuplicateObjects: false }) : '';

/** Compares one object. Without whole, fields that Git does not set are left out. */
export function comparisonOf(object: ObjectDiff, whole: boolean): Comparison {
  return compare(yaml(whole ? object.live : (object.normalizedLive ?? object.live)), yaml(object.desired));
}

/** So long at a time, in milliseconds, comparing may keep the page from answering. */
const slice = 12;

/** Compares all objects, a few at a time; those that are done are in the map. */
export function useComparisons(changes: ObjectChange[], whole: boolean): ReadonlyMap<string, Comparison> {
  const [done, setDone] = useState<ReadonlyMap<string, Comparison>>(new Map());
  useEffect(() => {
    const out = new Map<string, Comparison>();
    let at = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const work = () => {
      const until = performance.now() + slice;
      while (at < changes.length && performance.now() < until) {
        const c = changes[at++];
        if (c) out.set(c.id, comparisonOf(c.object, whole));
      }
      // Few updates: each draws the list again.
      if (at >= changes.length || at % 50 < 10) setDone(new Map(out));
      if (at < changes.length) timer = setTimeout(work);
    };
    work();
    return () => clearTimeout(timer);
  }, [changes, whole]);
  return done;
}
