import { expect, test } from 'vitest';
import type { Application } from '../../api/client';
import { applyChange, filtered, isChildApplication, keyOf, operationWord } from './model';

const app = (name: string, version: string, sync: 'Synced' | 'OutOfSync' = 'Synced'): Application => ({
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'Application',
  metadata: { name, namespace: 'argocd', resourceVersion: version },
  spec: { project: 'default' },
  status: { sync: { status: sync }, capstan: { id: name, generation: 1, resources: 1, automation: 'Auto' } },
});

test('a newer version replaces the one that is held', () => {
  const got = applyChange([app('shop', '1')], {
    kind: 'application',
    id: 'shop',
    application: app('shop', '2', 'OutOfSync'),
  });
  expect(got).toHaveLength(1);
  expect(got[0]?.status?.sync?.status).toBe('OutOfSync');
});

test('an older version is ignored, so that a replay does no harm', () => {
  const got = applyChange([app('shop', '5')], {
    kind: 'application',
    id: 'shop',
    application: app('shop', '4', 'OutOfSync'),
  });
  expect(got[0]?.status?.sync?.status).toBe('Synced');
});

test('a new application takes its place by name', () => {
  const got = applyChange([app('b', '1')], { kind: 'application', id: 'a', application: app('a', '1') });
  expect(got.map(keyOf)).toEqual(['argocd/a', 'argocd/b']);
});

test('one that is gone leaves the list', () => {
  expect(applyChange([app('a', '1')], { kind: 'application', id: 'a', gone: true })).toEqual([]);
});

test('filters combine', () => {
  const apps = [app('shop', '1'), app('shop-db', '1', 'OutOfSync'), app('web', '1', 'OutOfSync')];
  expect(filtered(apps, { q: 'SHOP', sync: 'OutOfSync' }).map(keyOf)).toEqual(['argocd/shop-db']);
});

test('a failed operation that is tried again does not look final', () => {
  const a = app('shop', '1');
  if (a.status) {
    a.status.operationState = {
      id: '1',
      kind: 'sync',
      phase: 'Failed',
      startedAt: '2026-01-01T00:00:00Z',
      retryAt: '2026-01-01T00:00:05Z',
    };
  }
  expect(operationWord(a).word).toBe('Retrying');
});

test('UX-APP-4 only applications of the hub are pages of their own', () => {
  const node = { group: 'argoproj.io', version: 'v1alpha1', kind: 'Application', name: 'a', managed: true };
  expect(isChildApplication(node)).toBe(true);
  expect(isChildApplication({ ...node, group: 'app.k8s.io' })).toBe(false);
  expect(isChildApplication({ ...node, kind: 'AppProject' })).toBe(false);
});
