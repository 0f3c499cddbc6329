import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { ObjectDiff } from '../../../api/client';
import { deletesAll, firstChoice, lastChoice, notesOn, rememberChoice, requestOf, stepsOf } from './choice';

const object = (name: string, has: 'both' | 'live' | 'desired'): ObjectDiff => ({
  group: '',
  version: 'v1',
  kind: 'ConfigMap',
  namespace: 'n',
  name,
  status: 'OutOfSync',
  ...(has !== 'desired' ? { live: {} } : {}),
  ...(has !== 'live' ? { desired: {} } : {}),
});
const items = [object('gone', 'live'), object('late', 'both'), object('new', 'desired')];
const waves = new Map([
  ['/ConfigMap/n/late', 2],
  ['/ConfigMap/n/new', -1],
]);
const first = firstChoice(true);

describe('UI-09 UX-OP-1 what a sync does', () => {
  test('the plan goes by waves, and deletes last', () => {
    const steps = stepsOf(items, waves, first);
    expect(steps.map((s) => [s.action, s.object.name, s.left])).toEqual([
      ['create', 'new', false],
      ['change', 'late', false],
      ['delete', 'gone', false],
    ]);
  });

  test('what is not chosen is left out: deletions without prune, objects that are not picked', () => {
    expect(
      stepsOf(items, waves, { ...first, prune: false })
        .filter((s) => s.left)
        .map((s) => s.object.name),
    ).toEqual(['gone']);
    const picked = { ...first, selection: 'picked' as const, picked: ['/ConfigMap/n/late'] };
    expect(
      stepsOf(items, waves, picked)
        .filter((s) => !s.left)
        .map((s) => s.object.name),
    ).toEqual(['late']);
  });

  test('the request has each choice', () => {
    expect(requestOf(first, items)).toEqual({ prune: true, dryRun: false });
    expect(
      requestOf(
        {
          ...first,
          revision: 'v1',
          selection: 'picked',
          picked: ['/ConfigMap/n/new'],
          force: true,
          replace: true,
          applyOnly: true,
          retry: true,
          options: ['Validate'],
          reason: 'why',
        },
        items,
      ),
    ).toEqual({
      prune: true,
      dryRun: false,
      revision: 'v1',
      strategy: { apply: { force: true } },
      syncOptions: ['Validate=false', 'Replace=true'],
      resources: [{ group: '', kind: 'ConfigMap', namespace: 'n', name: 'new' }],
      retry: { limit: 3, backoff: { duration: '10s', factor: 2, maxDuration: '3m' } },
      reason: 'why',
    });
    expect(requestOf({ ...first, selection: 'drifted', force: true }, items)).toMatchObject({
      strategy: { hook: { force: true } },
      syncOptions: ['ApplyOutOfSyncOnly=true'],
    });
  });

  test('choices without effect are explained', () => {
    const steps = stepsOf([object('late', 'both')], waves, first);
    expect(notesOn(first, steps)).toEqual(['There is nothing to prune.']);
    expect(notesOn({ ...first, dryRun: true, retry: true, prune: false, options: ['PruneLast'] }, steps)).toHaveLength(
      2,
    );
    expect(
      notesOn({ ...first, replace: true, options: ['ServerSideApply'] }, stepsOf(items, waves, first)),
    ).toHaveLength(1);
  });

  test('deleting everything is noticed', () => {
    const steps = stepsOf([object('a', 'live'), object('b', 'live')], waves, first);
    expect(deletesAll(steps, 2)).toBe(true);
    expect(deletesAll(steps, 3)).toBe(false);
    expect(deletesAll(stepsOf(items, waves, { ...first, prune: false }), 0)).toBe(false);
  });
});

describe('the last choice', () => {
  beforeEach(() => {
    const held = new Map<string, string>();
    vi.stubGlobal('localStorage', {
      getItem: (k: string) => held.get(k) ?? null,
      setItem: (k: string, v: string) => held.set(k, v),
    });
  });
  test('UX-OP-1 is kept for each application, but for what is of one sync alone', () => {
    rememberChoice('a/b', {
      ...first,
      selection: 'drifted',
      dryRun: true,
      force: true,
      reason: 'x',
      options: ['PruneLast', 'nonsense'],
    });
    expect(lastChoice('a/b', false)).toEqual({ ...firstChoice(true), selection: 'drifted', options: ['PruneLast'] });
    expect(lastChoice('a/c', false)).toEqual(firstChoice(false));
    localStorage.setItem('capstan.sync.bad', '{');
    expect(lastChoice('bad', true)).toEqual(first);
  });
});
