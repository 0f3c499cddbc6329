import { expect, test } from 'vitest';
import type { Application } from '../../api/client';
import { agentLook, isChildApplication, operationWord } from './model';

const app = (name: string, version: string, sync: 'Synced' | 'OutOfSync' = 'Synced'): Application => ({
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'Application',
  metadata: { name, namespace: 'argocd', resourceVersion: version },
  spec: { project: 'default' },
  status: { sync: { status: sync }, capstan: { id: name, generation: 1, resources: 1, automation: 'Auto' } },
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

test('UI-10 the agent does not look well when what it says is old', () => {
  const a = app('shop', '1');
  const hub = a.status?.capstan;
  if (!hub) throw new Error('the application has no state');
  hub.connection = 'Connected';
  expect(agentLook(a)).toMatchObject({ label: 'Connected', tone: 'ok' });
  hub.stale = { reason: 'AgentBehind' } as NonNullable<typeof hub.stale>;
  expect(agentLook(a)).toMatchObject({ label: 'Behind', tone: 'unknown' });
  hub.connection = 'Disconnected';
  expect(agentLook(a)).toMatchObject({ label: 'Disconnected', tone: 'unknown' });
});
