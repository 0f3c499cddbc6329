import { describe, expect, test } from 'vitest';
import type { Node } from '../../../api/client';
import { warningsFirst } from './events';
import { equal, mergePatch } from './patch';
import { parseReference, referenceOf, related } from './reference';
import { summaryOf } from './summary';
import { panelWidth } from './width';

const rows = (live: unknown, kind: string) => {
  const [group = '', name = ''] = kind.split('/');
  return Object.fromEntries(summaryOf(live, group, name).rows.map((r) => [r.label, r.value]));
};

describe('UI-07(part) the summary of each kind', () => {
  const template = { spec: { containers: [{ name: 'app', image: 'x:1' }] } };
  const table: [kind: string, live: unknown, says: Record<string, string>][] = [
    [
      'apps/Deployment',
      {
        spec: { replicas: 3, template, selector: { matchLabels: { app: 'a' } } },
        status: { readyReplicas: 2, updatedReplicas: 1 },
      },
      { Replicas: '2 of 3 ready', Updated: '1 of 3', 'Image of app': 'x:1', Selector: 'app=a' },
    ],
    [
      'apps/StatefulSet',
      { spec: { template }, status: { readyReplicas: 1, updatedReplicas: 1 } },
      { Replicas: '1 of 1 ready' },
    ],
    [
      'apps/DaemonSet',
      { spec: { template }, status: { numberReady: 2, desiredNumberScheduled: 5 } },
      { Replicas: '2 of 5 ready' },
    ],
    [
      '/Service',
      {
        spec: {
          type: 'ClusterIP',
          clusterIP: '10.0.0.1',
          ports: [{ name: 'http', port: 80, targetPort: 8080 }],
          selector: { app: 'a' },
        },
      },
      { Type: 'ClusterIP', 'Port http': '80 to 8080/TCP' },
    ],
    [
      'networking.k8s.io/Ingress',
      {
        spec: {
          rules: [
            {
              host: 'a.example',
              http: { paths: [{ path: '/', backend: { service: { name: 'web', port: { number: 80 } } } }] },
            },
          ],
        },
      },
      { 'a.example': '/ to web:80' },
    ],
    [
      'batch/Job',
      { spec: { completions: 2, backoffLimit: 3, template }, status: { succeeded: 1, failed: 1 } },
      { Completions: '1 of 2', Failed: '1 of at most 3' },
    ],
    [
      'batch/CronJob',
      { spec: { schedule: '0 3 * * *', suspend: true } },
      { Schedule: '0 3 * * *', Suspended: 'yes', 'Last started': 'never' },
    ],
    [
      '/PersistentVolumeClaim',
      { spec: { resources: { requests: { storage: '1Gi' } } }, status: { phase: 'Pending' } },
      { Phase: 'Pending', Requested: '1Gi' },
    ],
  ];
  test.each(table)('%s', (kind, live, says) => expect(rows(live, kind)).toMatchObject(says));

  test('a pod has its containers with state, restarts and the exit before', () => {
    const live = {
      spec: { initContainers: [{ name: 'wait', image: 'w' }], containers: [{ name: 'api', image: 'a' }] },
      status: {
        initContainerStatuses: [{ name: 'wait', state: { terminated: { exitCode: 0 } } }],
        containerStatuses: [
          {
            name: 'api',
            restartCount: 7,
            state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off' } },
            lastState: { terminated: { exitCode: 1, reason: 'Error', finishedAt: '2026-01-01T00:00:00Z' } },
          },
        ],
      },
    };
    expect(summaryOf(live, '', 'Pod').containers).toMatchObject([
      { name: 'wait', kind: 'init', state: 'Completed', tone: 'ok' },
      {
        name: 'api',
        state: 'CrashLoopBackOff',
        tone: 'failed',
        restarts: 7,
        lastExit: 'Error, exit 1',
        message: 'back-off',
      },
    ]);
  });

  test('a Secret shows its keys and no size or value', () => {
    expect(summaryOf({ data: { password: 'c2VjcmV0' } }, '', 'Secret').keys).toEqual([
      { name: 'password', size: undefined },
    ]);
    expect(summaryOf({ data: { a: 'ü' } }, '', 'ConfigMap').keys).toEqual([{ name: 'a', size: 2 }]);
  });

  test('anything may be missing or of another type', () => {
    for (const live of [undefined, null, 'text', [], { spec: 'x', status: [] }, { status: { conditions: 'no' } }]) {
      for (const [kind] of table) expect(() => rows(live, kind)).not.toThrow();
      expect(summaryOf(live, '', 'Pod').containers).toEqual([]);
    }
  });
});

test('warnings come first, and of each the newest', () => {
  const e = (type: string, lastSeen: string) => ({
    type,
    reason: 'r',
    message: lastSeen,
    kind: 'Pod',
    name: 'p',
    count: 1,
    lastSeen,
  });
  const sorted = warningsFirst([e('Normal', '2026-01-03'), e('Warning', '2026-01-01'), e('Warning', '2026-01-02')]);
  expect(sorted.map((x) => x.message)).toEqual(['2026-01-02', '2026-01-01', '2026-01-03']);
});

describe('mergePatch', () => {
  const apply = (value: unknown, patch: unknown): unknown => {
    if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
    const out: Record<string, unknown> =
      typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
    for (const [k, v] of Object.entries(patch)) {
      if (v === null) delete out[k];
      else out[k] = apply(out[k], v);
    }
    return out;
  };
  test('a patch makes one object of the other', () => {
    const pairs = [
      [
        { a: 1, b: { c: 2, d: 3 } },
        { a: 1, b: { c: 2 } },
      ],
      [{ a: [1, 2] }, { a: [1] }],
      [{ a: 1 }, { a: { b: 2 } }],
      [{ a: { b: 2 } }, { a: 'x', c: false }],
      [{}, { deep: { er: { x: [] } } }],
    ];
    for (const [from, to] of pairs) expect(apply(from, mergePatch(from, to))).toEqual(to);
    expect(mergePatch({ a: { b: [1, { c: 2 }] } }, { a: { b: [1, { c: 2 }] } })).toBeUndefined();
    expect(equal({ a: 1, b: undefined }, { a: 1 })).toBe(false);
  });
});

describe('the address of an object', () => {
  const node = (more: Partial<Node>): Node => ({
    group: 'apps',
    version: 'v1',
    kind: 'Deployment',
    name: 'web',
    managed: true,
    ...more,
  });
  test('reads back what it wrote, and nothing else', () => {
    for (const n of [node({ namespace: 'a' }), node({ group: '' })]) {
      expect(parseReference(referenceOf(n))).toEqual({
        group: n.group,
        kind: n.kind,
        namespace: n.namespace ?? '',
        name: n.name,
      });
    }
    for (const bad of [undefined, '', 'a/b', 'a/b/c/', '/x//a/b', '//n/x']) expect(parseReference(bad)).toBeUndefined();
  });
  test('owners are found up to the top, and a circle ends', () => {
    const a = node({ uid: 'a', name: 'a', parent: 'c' });
    const b = node({ uid: 'b', name: 'b', parent: 'a' });
    const c = node({ uid: 'c', name: 'c', parent: 'b' });
    expect(related([a, b, c], c).owners.map((n) => n.name)).toEqual(['b', 'a', 'c']);
    expect(related([a, b], a).children).toEqual([b]);
  });
});

test('the panel is no narrower than 480 and no wider than 960 pixels', () => {
  expect([0, 480, 700.4, 5000, Number.NaN].map(panelWidth)).toEqual([480, 480, 700, 960, 480]);
});
