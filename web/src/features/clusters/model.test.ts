import { expect, test } from 'vitest';
import type { Cluster, Enrolment } from '../../api/client';
import { actWords, commandOf, connectionLook, doctorOf, matches, problemOf, readLabels, steps } from './model';

const cluster = (change: Partial<Cluster> = {}): Cluster => ({
  id: '1',
  name: 'prod-eu-1',
  connection: 'Connected',
  createdAt: '2026-01-01T00:00:00Z',
  labels: { env: 'prod' },
  agentVersion: 'v1.2.3',
  ...change,
});
const at = '2026-01-01T10:00:00Z';
const refusal = (stage: string) => ({ at, address: '203.0.113.9', stage, message: `refused at ${stage}` });

test('UX-ON-7 a cluster is found by words of its name, labels and versions, and by its state', () => {
  expect(matches(cluster(), 'EU env=prod', undefined)).toBe(true);
  expect(matches(cluster(), '1.2.3', 'connected')).toBe(true);
  expect(matches(cluster(), 'env=test', undefined)).toBe(false);
  expect(matches(cluster(), '', 'disconnected')).toBe(false);
  expect(matches(cluster({ connection: 'NeverConnected' }), '', 'never')).toBe(true);
  expect(matches(cluster(), '', 'problems')).toBe(false);
  expect(matches(cluster({ refusal: refusal('token') }), '', 'problems')).toBe(true);
});

test('UX-ON-7 a quarantine prevails over a connection, and a problem is one sentence', () => {
  const q = { since: at, known: 'a', other: 'b', address: '203.0.113.9' };
  expect(connectionLook(cluster({ quarantine: q })).label).toBe('Quarantined');
  expect(connectionLook(cluster()).tone).toBe('ok');
  expect(problemOf(cluster())).toBe('');
  expect(problemOf(cluster({ connection: 'Disconnected' }))).toContain('not connected');
});

test('UX-ON-4 labels are read as people write them, and a wrong one is named', () => {
  expect(readLabels(' env=prod, region=eu\nempty= ')).toEqual({
    labels: { env: 'prod', region: 'eu', empty: '' },
    error: '',
  });
  expect(readLabels('env=prod, region').error).toContain('“region”');
});

test('UX-ON-4 one command is there in each form and for each mode', () => {
  const enrolment: Enrolment = {
    cluster: cluster(),
    joinToken: 'token',
    expiresAt: at,
    command: 'capstan-agent run',
    helm: 'helm install capstan-agent oci://r.example/chart --namespace capstan-system --create-namespace --set join.token=token',
  };
  expect(commandOf(enrolment, 'binary', 'observe', [])).toBe('capstan-agent run');
  expect(commandOf(enrolment, 'helm', 'cluster', [])).toBe(enrolment.helm);
  expect(commandOf(enrolment, 'helm', 'observe', [])).toMatch(/ --set mode=observe$/);
  const kubectl = commandOf(enrolment, 'kubectl', 'namespaced', ['shop', 'pay']);
  expect(kubectl).toMatch(/^kubectl create namespace capstan-system && helm template capstan-agent /);
  expect(kubectl).toContain("--set mode=namespaced --set namespaces='{shop,pay}' | kubectl apply -f -");
  expect(kubectl).not.toContain('create-namespace');
});

test('UX-ON-5 where an agent does not arrive, one command says why', () => {
  const enrolment: Enrolment = {
    cluster: cluster(),
    joinToken: 'token',
    expiresAt: at,
    command: 'capstan-agent run --join-token-file <(printf %s token)',
    helm: 'helm install capstan-agent',
  };
  expect(doctorOf(enrolment, 'binary')).toBe('capstan-agent doctor --join-token-file <(printf %s token)');
  for (const form of ['helm', 'kubectl'] as const) {
    expect(doctorOf(enrolment, form)).toMatch(/^kubectl .* exec deploy\/capstan-agent -- capstan-agent doctor$/);
  }
});

const states = (c: Cluster | undefined) =>
  steps(c, at)
    .map((s) => s.state)
    .join(' ');

test('UX-ON-5 the steps of an enrolment turn green one after the other', () => {
  const waiting = cluster({ connection: 'NeverConnected', agentVersion: '' });
  const enrolment = { id: 'e', prefix: 'cpe_a', expiresAt: at, createdBy: 'ann' };
  expect(states(undefined)).toBe('done running open open open');
  expect(states(waiting)).toBe('done running open open open');
  const used = { ...enrolment, usedAt: '2026-01-01T10:00:02Z' };
  const issued = { ...waiting, enrolments: [{ ...used, attempts: [{ at, address: '203.0.113.9', stage: 'issued' }] }] };
  expect(states(issued)).toBe('done done done running open');
  expect(steps(issued, at)[2]?.note).toBe('2 s');
  expect(states(cluster({ kubeVersion: 'v1.34.2', enrolments: [used] }))).toBe('done done done done done');
});

test('UX-ON-5 each refusal marks the step that failed, with its reason', () => {
  for (const [stage, failed] of [
    ['token', 1],
    ['expired', 1],
    ['used', 1],
    ['version', 1],
    ['csr', 2],
    ['certificate', 3],
    ['fingerprint', 3],
  ] as const) {
    const all = steps(cluster({ connection: 'NeverConnected', refusal: refusal(stage) }), at);
    expect(all.findIndex((s) => s.state === 'failed')).toBe(failed);
    expect(all[failed]?.note).toBe(`refused at ${stage}`);
    expect(all.some((s) => s.state === 'running')).toBe(false);
  }
});

test('UI-16 what was done to a cluster is said in words', () => {
  expect(actWords('enroll', 'prod-eu-1')).toBe('Make a join token');
  expect(actWords('delete', 'prod-eu-1')).toBe('Remove the cluster');
  expect(actWords('something-new', 'prod-eu-1')).toBe('something-new prod-eu-1');
});
