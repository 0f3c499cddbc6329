import { t } from '../../../texts';
import type { Tone } from '../../../ui/shapes';
import { at, type Fields, fields, list, number, text } from './read';

/** One fact of an object. */
export interface Row {
  label: string;
  value: string;
  mono?: boolean;
  tone?: Tone;
}

/** A container of a pod, and how it is. */
export interface Container {
  name: string;
  image: string;
  kind: 'init' | 'app';
  state: string;
  tone: Tone;
  restarts: number;
  /** How the instance before it ended; empty: there was none. */
  lastExit: string;
  lastExitAt: string;
  /** What the cluster says about a container that does not run. */
  message: string;
}

export interface Condition {
  type: string;
  status: string;
  tone: Tone;
  reason: string;
  message: string;
  since: string;
}

/** What matters of an object of a kind. */
export interface Summary {
  rows: Row[];
  containers: Container[];
  conditions: Condition[];
  /** Keys of a ConfigMap or Secret with the size of each value, in bytes; undefined: it is masked. */
  keys: { name: string; size: number | undefined }[];
}

type Rows = (live: unknown) => Row[];

const row = (label: string, value: string, more: Partial<Row> = {}): Row[] =>
  value ? [{ label, value, ...more }] : [];
const code = { mono: true };

function pairs(value: unknown): string {
  return Object.entries(fields(value))
    .map(([k, v]) => `${k}=${text(v)}`)
    .join(', ');
}

function images(live: unknown): Row[] {
  const containers = list(live, 'spec.template.spec.containers');
  return containers.flatMap((c) => row(t('Image of {{name}}', { name: text(c, 'name') }), text(c, 'image'), code));
}

function replicas(ready: number, wanted: number): Row {
  const tone: Tone = ready >= wanted ? 'ok' : ready === 0 ? 'failed' : 'attention';
  return { label: t('Replicas'), value: t('{{ready}} of {{wanted}} ready', { ready, wanted }), tone };
}

const workload: Rows = (live) => {
  const wanted = number(live, 'spec.replicas', 1);
  const updated = number(live, 'status.updatedReplicas');
  return [
    replicas(number(live, 'status.readyReplicas'), wanted),
    ...(updated < wanted
      ? row(t('Updated'), t('{{n}} of {{total}}', { n: updated, total: wanted }), { tone: 'working' })
      : []),
    ...row(t('Strategy'), text(live, 'spec.strategy.type') || text(live, 'spec.updateStrategy.type')),
    ...images(live),
    ...row(t('Selector'), pairs(at(live, 'spec.selector.matchLabels')), code),
  ];
};

const daemonSet: Rows = (live) => [
  replicas(number(live, 'status.numberReady'), number(live, 'status.desiredNumberScheduled')),
  ...row(t('Strategy'), text(live, 'spec.updateStrategy.type')),
  ...images(live),
  ...row(t('Selector'), pairs(at(live, 'spec.selector.matchLabels')), code),
];

function requests(live: unknown): string {
  const sums = list(live, 'spec.containers').map((c) => pairs(at(c, 'resources.requests')));
  return sums.filter(Boolean).join(' + ');
}

const pod: Rows = (live) => [
  ...row(t('Phase'), text(live, 'status.phase')),
  ...row(t('Reason'), text(live, 'status.reason') || text(live, 'status.message'), { tone: 'failed' }),
  ...row(t('Node'), text(live, 'spec.nodeName')),
  ...row(t('Address'), text(live, 'status.podIP'), code),
  ...row(t('Requests'), requests(live)),
  ...row(t('Quality of service'), text(live, 'status.qosClass')),
  ...row(t('Service account'), text(live, 'spec.serviceAccountName')),
];

const service: Rows = (live) => [
  ...row(t('Type'), text(live, 'spec.type')),
  ...row(t('Address'), text(live, 'spec.clusterIP'), code),
  ...row(
    t('External address'),
    list(live, 'status.loadBalancer.ingress')
      .map((i) => text(i, 'ip') || text(i, 'hostname'))
      .join(', '),
    code,
  ),
  ...list(live, 'spec.ports').flatMap((p) =>
    row(
      t('Port {{port}}', { port: text(p, 'name') || text(p, 'port') }),
      t('{{from}} to {{to}}', {
        from: text(p, 'port'),
        to: `${text(p, 'targetPort') || text(p, 'port')}/${text(p, 'protocol') || 'TCP'}`,
      }),
      code,
    ),
  ),
  ...row(t('Selector'), pairs(at(live, 'spec.selector')), code),
];

function paths(rule: unknown): string {
  return list(rule, 'http.paths')
    .map((p) => {
      const port = text(p, 'backend.service.port.number') || text(p, 'backend.service.port.name');
      return t('{{from}} to {{to}}', {
        from: text(p, 'path') || '/',
        to: `${text(p, 'backend.service.name')}:${port}`,
      });
    })
    .join(', ');
}

const ingress: Rows = (live) => [
  ...row(t('Class'), text(live, 'spec.ingressClassName')),
  ...list(live, 'spec.rules').flatMap((r) => row(text(r, 'host') || t('any host'), paths(r), code)),
  ...row(
    'TLS',
    list(live, 'spec.tls')
      .flatMap((item) => list(item, 'hosts').map((h) => text(h)))
      .join(', '),
    code,
  ),
  ...row(
    t('External address'),
    list(live, 'status.loadBalancer.ingress')
      .map((i) => text(i, 'ip') || text(i, 'hostname'))
      .join(', '),
    code,
  ),
];

const job: Rows = (live) => {
  const failed = number(live, 'status.failed');
  const wanted = number(live, 'spec.completions', 1);
  const done = number(live, 'status.succeeded');
  return [
    {
      label: t('Completions'),
      value: t('{{n}} of {{total}}', { n: done, total: wanted }),
      tone: done >= wanted ? 'ok' : 'working',
    },
    ...row(t('Running'), text(live, 'status.active')),
    ...row(
      t('Failed'),
      failed ? t('{{n}} of at most {{most}}', { n: failed, most: number(live, 'spec.backoffLimit', 6) }) : '',
      { tone: 'failed' },
    ),
    ...row(t('Started'), text(live, 'status.startTime')),
    ...row(t('Completed'), text(live, 'status.completionTime')),
    ...images(live),
  ];
};

const cronJob: Rows = (live) => [
  ...row(t('Schedule'), [text(live, 'spec.schedule'), text(live, 'spec.timeZone')].filter(Boolean).join(' '), code),
  ...(at(live, 'spec.suspend') === true ? row(t('Suspended'), t('yes'), { tone: 'paused' }) : []),
  ...row(t('Running'), String(list(live, 'status.active').length)),
  ...row(t('Last started'), text(live, 'status.lastScheduleTime') || t('never')),
  ...row(t('Last success'), text(live, 'status.lastSuccessfulTime')),
  ...row(t('Concurrency'), text(live, 'spec.concurrencyPolicy')),
];

const claim: Rows = (live) => {
  const phase = text(live, 'status.phase');
  return [
    ...row(t('Phase'), phase, { tone: phase === 'Bound' ? 'ok' : phase === 'Lost' ? 'failed' : 'attention' }),
    ...row(t('Capacity'), text(live, 'status.capacity.storage')),
    ...row(t('Requested'), text(live, 'spec.resources.requests.storage')),
    ...row(t('Storage class'), text(live, 'spec.storageClassName')),
    ...row(
      t('Access'),
      list(live, 'spec.accessModes')
        .map((m) => text(m))
        .join(', '),
    ),
    ...row(t('Volume'), text(live, 'spec.volumeName'), code),
  ];
};

const autoscaler: Rows = (live) => [
  ...row(t('Target'), `${text(live, 'spec.scaleTargetRef.kind')} ${text(live, 'spec.scaleTargetRef.name')}`.trim()),
  ...row(
    t('Replicas'),
    t('{{current}} now, {{least}} to {{most}}', {
      current: text(live, 'status.currentReplicas') || '0',
      least: text(live, 'spec.minReplicas') || '1',
      most: text(live, 'spec.maxReplicas'),
    }),
  ),
];

const secret: Rows = (live) => row(t('Type'), text(live, 'type'), code);

const kinds: Readonly<Record<string, Rows>> = {
  'apps/Deployment': workload,
  'apps/StatefulSet': workload,
  'apps/ReplicaSet': workload,
  'apps/DaemonSet': daemonSet,
  '/Pod': pod,
  '/Service': service,
  'networking.k8s.io/Ingress': ingress,
  'batch/Job': job,
  'batch/CronJob': cronJob,
  '/PersistentVolumeClaim': claim,
  'autoscaling/HorizontalPodAutoscaler': autoscaler,
  '/Secret': secret,
};

function ended(state: Fields): { word: string; tone: Tone; message: string; at: string } {
  const exit = number(state, 'terminated.exitCode');
  const reason = text(state, 'terminated.reason');
  return {
    word: exit === 0 ? t('Completed') : t('{{reason}}, exit {{exit}}', { reason: reason || t('Failed'), exit }),
    tone: exit === 0 ? 'ok' : 'failed',
    message: text(state, 'terminated.message'),
    at: text(state, 'terminated.finishedAt'),
  };
}

/** Waiting for one of these ends by itself. */
const passing = new Set(['ContainerCreating', 'PodInitializing', '']);

function stateOf(status: unknown): { word: string; tone: Tone; message: string } {
  const state = fields(at(status, 'state'));
  if (state['waiting']) {
    const reason = text(state, 'waiting.reason');
    return {
      word: reason || t('Waiting'),
      tone: passing.has(reason) ? 'working' : 'failed',
      message: text(state, 'waiting.message'),
    };
  }
  if (state['terminated']) return ended(state);
  if (state['running']) {
    const ready = at(status, 'ready') === true;
    return { word: ready ? t('Running') : t('Running, not ready'), tone: ready ? 'ok' : 'attention', message: '' };
  }
  return { word: t('Not started'), tone: 'unknown', message: '' };
}

function containersOf(live: unknown): Container[] {
  const read = (kind: Container['kind'], specs: string, statuses: string) =>
    list(live, specs).map((spec): Container => {
      const name = text(spec, 'name');
      const status = list(live, statuses).find((s) => text(s, 'name') === name);
      const now = stateOf(status);
      const last = fields(at(status, 'lastState'));
      const before = last['terminated'] ? ended(last) : undefined;
      return {
        name,
        kind,
        image: text(spec, 'image'),
        state: now.word,
        tone: now.tone,
        message: now.message || before?.message || '',
        restarts: number(status, 'restartCount'),
        lastExit: before?.word ?? '',
        lastExitAt: before?.at ?? '',
      };
    });
  return [
    ...read('init', 'spec.initContainers', 'status.initContainerStatuses'),
    ...read('app', 'spec.containers', 'status.containerStatuses'),
  ];
}

/** Conditions that are good when they are not true. */
const inverse = /Failed|Failure|Pressure|Unavailable|Terminating|ReplicaFailure|Suspended|Stalled/;

function conditionsOf(live: unknown): Condition[] {
  return list(live, 'status.conditions').map((c): Condition => {
    const type = text(c, 'type');
    const status = text(c, 'status');
    const good = inverse.test(type) ? status === 'False' : status === 'True';
    return {
      type,
      status,
      tone: status === 'Unknown' ? 'unknown' : good ? 'ok' : 'attention',
      reason: text(c, 'reason'),
      message: text(c, 'message'),
      since: text(c, 'lastTransitionTime'),
    };
  });
}

function keysOf(live: unknown, kind: string): Summary['keys'] {
  if (kind !== 'ConfigMap' && kind !== 'Secret') return [];
  const size = (value: unknown) => (kind === 'Secret' ? undefined : new TextEncoder().encode(text(value)).length);
  return ['data', 'binaryData'].flatMap((part) =>
    Object.entries(fields(at(live, part))).map(([name, value]) => ({ name, size: size(value) })),
  );
}

/** What matters of a live object. Of a kind that is not known here, its conditions do. */
export function summaryOf(live: unknown, group: string, kind: string): Summary {
  return {
    rows: kinds[`${group}/${kind}`]?.(live) ?? [],
    containers: group === '' && kind === 'Pod' ? containersOf(live) : [],
    conditions: conditionsOf(live),
    keys: group === '' ? keysOf(live, kind) : [],
  };
}

/** Whether an object has logs: it is a pod, or owns some. */
export function hasLogs(group: string, kind: string): boolean {
  return [
    '/Pod',
    'apps/Deployment',
    'apps/ReplicaSet',
    'apps/StatefulSet',
    'apps/DaemonSet',
    'batch/Job',
    'batch/CronJob',
  ].includes(`${group}/${kind}`);
}
