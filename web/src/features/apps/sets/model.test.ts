import { describe, expect, test } from 'vitest';
import type { ApplicationSet, Previewed, SetPreview } from './api';
import {
  firstSet,
  generatorsOf,
  guardOf,
  membersOf,
  problemsOf,
  readSet,
  rolloutOf,
  shownItems,
  textOfSet,
  writableSet,
} from './model';

const set = (spec: ApplicationSet['spec'], status: ApplicationSet['status'] = {}): ApplicationSet => ({
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'ApplicationSet',
  metadata: { name: 'fleet', namespace: 'argocd', uid: 'x', resourceVersion: '7' },
  spec,
  status,
});

test('the kinds of generators are named once each, with those inside of others', () => {
  expect(
    generatorsOf({
      generators: [
        { list: { elements: [] }, selector: {} },
        { matrix: { generators: [{ git: {} }, { merge: { generators: [{ clusters: {} }, { list: {} }] } }] } },
        null,
      ],
    }),
  ).toEqual(['list', 'matrix', 'git', 'merge', 'clusters']);
  expect(generatorsOf(undefined)).toEqual([]);
});

test('ASET-20(part) conditions that somebody has to act on are problems, others are none', () => {
  const of = (type: string, status: 'True' | 'False') => ({ type, status, reason: '', message: '' });
  const conditions = [
    of('ErrorOccurred', 'True'),
    of('ResourcesUpToDate', 'True'),
    of('RolloutProgressing', 'True'),
    of('InvalidRolloutConfig', 'False'),
    of('DeletionHeld', 'True'),
  ];
  expect(problemsOf(set({}, { conditions })).map((c) => c.type)).toEqual(['ErrorOccurred', 'DeletionHeld']);
});

describe('APRG-05(part) the steps of a rollout', () => {
  const state = (application: string, step: string, status: 'Waiting' | 'Pending' | 'Progressing' | 'Healthy') => ({
    application,
    step,
    status,
    message: '',
  });
  const spec = {
    strategy: {
      type: 'RollingSync',
      rollingSync: {
        steps: [
          { matchExpressions: [{ key: 'env', operator: 'In', values: ['dev', 'test'] }] },
          { matchExpressions: [{ key: 'env', operator: 'NotIn', values: ['dev'] }], maxUpdate: '25%' },
          { maxUpdate: 0 },
        ],
      },
    },
  };
  test('have their selectors, their pace and their state', () => {
    const found = rolloutOf(
      set(spec, {
        applicationStatus: [
          state('a', '1', 'Healthy'),
          state('b', '2', 'Progressing'),
          state('c', '2', 'Waiting'),
          state('d', '-1', 'Waiting'),
        ],
      }),
    );
    expect(found?.steps.map(({ number, selector, atOnce, state }) => ({ number, selector, atOnce, state }))).toEqual([
      { number: 1, selector: 'env = dev, test', atOnce: '', state: 'done' },
      { number: 2, selector: 'env ∉ dev', atOnce: '25%', state: 'running' },
      { number: 3, selector: '', atOnce: '0', state: 'empty' },
    ]);
    expect(found?.rest.map((a) => a.application)).toEqual(['d']);
  });
  test('wait while all of their applications do, and are none without a rolling sync', () => {
    const waiting = rolloutOf(set(spec, { applicationStatus: [state('b', '2', 'Waiting')] }));
    expect(waiting?.steps[1]?.state).toBe('waiting');
    expect(rolloutOf(set({ strategy: { type: 'AllAtOnce' } }))).toBeUndefined();
    expect(rolloutOf(set({}))).toBeUndefined();
  });
});

test('the applications of a set come with problems first, and are found by a part of their name', () => {
  const member = (name: string, status: 'Healthy' | 'Degraded' | 'Progressing') => ({
    version: 'v1alpha1',
    kind: 'Application',
    name,
    health: { status },
  });
  const s = set({}, { resources: [member('b', 'Healthy'), member('ab', 'Progressing'), member('c', 'Degraded')] });
  expect(membersOf(s, '').map((m) => m.name)).toEqual(['c', 'ab', 'b']);
  expect(membersOf(s, 'B').map((m) => m.name)).toEqual(['ab', 'b']);
});

describe('the text of a set', () => {
  test('has what people write, and comes back equal', () => {
    const s = set({ generators: [], unknown: { field: 1 } });
    const read = readSet(textOfSet(s));
    expect(read).toEqual({ set: writableSet(s), problem: '' });
    expect(textOfSet(s)).not.toMatch(/uid|resourceVersion|status/);
  });
  test('says where it cannot be read, and what it lacks', () => {
    expect(readSet('a: [\n')).toMatchObject({ line: expect.any(Number), problem: expect.stringMatching(/./) });
    for (const text of ['', 'a: b', 'kind: Application', textOfSet(set({})).replace('name: fleet', 'name: ""')])
      expect(readSet(text), text).toMatchObject({ problem: expect.stringContaining('ApplicationSet') });
    expect(readSet(firstSet).problem).toBe('');
  });
});

describe('UX-PRO-4(part) the guard on deletions', () => {
  const item = (name: string, action: Previewed['action'], more: Partial<Previewed> = {}): Previewed => ({
    namespace: 'argocd',
    name,
    action,
    ...more,
  });
  const preview = (items: Previewed[], held = 0): SetPreview => ({
    exists: true,
    items,
    applications: [],
    counts: {
      create: items.filter((i) => i.action === 'create').length,
      update: items.filter((i) => i.action === 'update').length,
      delete: items.filter((i) => i.action === 'delete').length,
      unchanged: items.filter((i) => i.action === 'unchanged').length,
      problems: items.filter((i) => i.problem).length,
      held,
    },
  });
  test('names what goes, and says when nothing would stay', () => {
    expect(guardOf(preview([item('a', 'delete'), item('b', 'unchanged')]))).toEqual({
      deleted: ['a'],
      held: 0,
      all: false,
    });
    expect(guardOf(preview([item('a', 'delete'), item('new', 'create')], 1))).toEqual({
      deleted: ['a'],
      held: 1,
      all: true,
    });
    expect(guardOf(preview([item('new', 'create')])).all).toBe(false);
  });
  test('entries are shown by what becomes of them, and those with a problem by that', () => {
    const items = [item('a', 'create'), item('b', 'create', { problem: 'no project' }), item('c', 'delete')];
    expect(shownItems(items, 'all')).toHaveLength(3);
    expect(shownItems(items, 'create').map((i) => i.name)).toEqual(['a', 'b']);
    expect(shownItems(items, 'problems').map((i) => i.name)).toEqual(['b']);
    expect(shownItems(items, 'update')).toEqual([]);
  });
});
