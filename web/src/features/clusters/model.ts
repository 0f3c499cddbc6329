import type { Cluster, Enrolment } from '../../api/client';
import { took } from '../../format/format';
import { t } from '../../texts';
import type { ShapeName, Tone } from '../../ui/shapes';

interface Look {
  label: string;
  tone: Tone;
  shape: ShapeName;
}

/** How the connection of a cluster's agent looks. A quarantine prevails over it. */
export function connectionLook(cluster: Cluster): Look {
  if (cluster.quarantine) return { label: t('Quarantined'), tone: 'paused', shape: 'shield' };
  switch (cluster.connection) {
    case 'Connected':
      return { label: t('Connected'), tone: 'ok', shape: 'plug' };
    case 'Disconnected':
      return { label: t('Disconnected'), tone: 'failed', shape: 'away' };
    default:
      return { label: t('Never connected'), tone: 'unknown', shape: 'absent' };
  }
}

/** The states by which the list is filtered, as the address has them. */
export const states = ['connected', 'disconnected', 'never', 'problems'] as const;
export type StateFilter = (typeof states)[number];

/** What somebody has to look at, as one sentence; empty: nothing. */
export function problemOf(cluster: Cluster): string {
  if (cluster.quarantine) return t('two Kubernetes clusters use its identity, and both are refused');
  if (cluster.rewind) return t('its agent has a newer log than the hub, and waits for a decision');
  if (cluster.refusal) return t('an agent was refused: {{message}}', { message: cluster.refusal.message });
  const phase = cluster.upgrade?.phase;
  if (phase === 'RolledBack' || phase === 'Failed') return cluster.upgrade?.message || t('the last upgrade failed');
  if (cluster.refused)
    return t('a second agent with its identity was refused from {{address}}', { address: cluster.refused.address });
  return cluster.connection === 'Disconnected' ? t('its agent is not connected') : '';
}

/** Whether a cluster is in a state and has a text in its name, labels, address or versions. */
export function matches(cluster: Cluster, text: string, state: string | undefined): boolean {
  if (state === 'connected' && cluster.connection !== 'Connected') return false;
  if (state === 'disconnected' && cluster.connection !== 'Disconnected') return false;
  if (state === 'never' && cluster.connection !== 'NeverConnected') return false;
  if (state === 'problems' && !problemOf(cluster)) return false;
  const labels = Object.entries(cluster.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  const all = [cluster.name, cluster.server, cluster.kubeVersion, cluster.agentVersion, ...labels].join(' ');
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.toLowerCase().includes(word));
}

/** Reads labels as people write them: a=b, c=d. Nothing is left out in silence: the error names what is wrong. */
export function readLabels(text: string): { labels: Record<string, string>; error: string } {
  const labels: Record<string, string> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const at = part.indexOf('=');
    if (at < 1) return { labels, error: t('“{{part}}” is not of the form key=value.', { part }) };
    labels[part.slice(0, at)] = part.slice(at + 1);
  }
  return { labels, error: '' };
}

/** The rights that the agent's chart grants. */
export const modes = [
  {
    value: 'cluster',
    label: t('Whole cluster'),
    about: t('It manages every kind in every namespace. Projects and the policy of the owner narrow that.'),
  },
  {
    value: 'namespaced',
    label: t('Some namespaces'),
    about: t('It manages objects of the listed namespaces alone, and nothing of the cluster as a whole.'),
  },
  {
    value: 'observe',
    label: t('Observe'),
    about: t('It reads and compares; every sync is refused by the API server.'),
  },
] as const;
export type Mode = (typeof modes)[number]['value'];

/** The forms in which an agent is started. */
export const forms = ['helm', 'kubectl', 'binary'] as const;
export type Form = (typeof forms)[number];
export const formLabels: Record<Form, string> = { helm: 'Helm', kubectl: 'kubectl', binary: t('Binary') };

/** One command that starts the agent of an enrolment, in a form and with the rights of a mode. */
export function commandOf(enrolment: Enrolment, form: Form, mode: Mode, namespaces: readonly string[]): string {
  if (form === 'binary') return enrolment.command;
  const rights =
    mode === 'cluster'
      ? ''
      : mode === 'observe'
        ? ' --set mode=observe'
        : ` --set mode=namespaced --set namespaces='{${namespaces.join(',')}}'`;
  const install = enrolment.helm + rights;
  if (form === 'helm') return install;
  const template = install.replace('helm install', 'helm template').replace(' --create-namespace', '');
  return `kubectl create namespace capstan-system && ${template} | kubectl apply -f -`;
}

/** One command that says, where an agent was started, why it does not reach the hub. It changes nothing. */
export function doctorOf(enrolment: Enrolment, form: Form): string {
  if (form === 'binary') return enrolment.command.replace('capstan-agent run', 'capstan-agent doctor');
  return 'kubectl --namespace capstan-system exec deploy/capstan-agent -- capstan-agent doctor';
}

/** A step of an enrolment, as the hub sees it. */
export interface Step {
  key: 'token' | 'reached' | 'certificate' | 'connected' | 'inventory';
  label: string;
  state: 'done' | 'running' | 'failed' | 'open';
  note: string;
}

/** Which step a refused attempt failed at, and what to do about it. */
const failures: Record<string, { step: Step['key']; fix: string }> = {
  token: {
    step: 'reached',
    fix: t('The join token is not one of this hub. Copy the whole command again, or make a new token.'),
  },
  expired: { step: 'reached', fix: t('The join token has expired. Make a new token and run the new command.') },
  used: {
    step: 'reached',
    fix: t(
      'The join token was used before; it works once. If that was not you, remove this cluster. Otherwise make a new token.',
    ),
  },
  version: {
    step: 'reached',
    fix: t('Hub and agent are too far apart. Use the image of the version that the hub names.'),
  },
  csr: {
    step: 'certificate',
    fix: t('The certificate request is not one that the hub signs. Use an agent of this release.'),
  },
  store: { step: 'certificate', fix: t('The hub could not store the enrolment. The agent tries again by itself.') },
  certificate: {
    step: 'connected',
    fix: t(
      'The certificate is not valid now. Compare the clock of the node with that of the hub, then enrol again if it has expired.',
    ),
  },
  suspended: { step: 'connected', fix: t('The tenant is suspended. A platform admin resumes it.') },
  replaced: { step: 'connected', fix: t('Another agent has taken this identity. Make a new token for this one.') },
  fingerprint: {
    step: 'connected',
    fix: t('Another Kubernetes cluster uses this identity. Choose which one keeps it on the page of the cluster.'),
  },
};

/** What to do about a refusal, by the stage at which it came. */
export const fixOf = (stage: string | undefined) => (stage ? (failures[stage]?.fix ?? '') : '');

/**
 * The steps of an enrolment with the time that each took, from what the hub has
 * recorded. seen says when the browser learned of the connection.
 */
export function steps(cluster: Cluster | undefined, madeAt: string, seen?: string): Step[] {
  const own = cluster?.enrolments?.[0];
  const issued = own?.usedAt;
  const connected = cluster?.connection === 'Connected';
  const attempts = own?.attempts ?? [];
  const first = attempts.at(-1);
  const reached = first?.at ?? issued;
  const failed = !connected && cluster?.refusal ? failures[cluster.refusal.stage] : undefined;
  const all: { key: Step['key']; label: string; done: boolean; note: string }[] = [
    { key: 'token', label: t('Join token made'), done: true, note: '' },
    {
      key: 'reached',
      label: t('Agent reached the hub'),
      done: !!reached || connected,
      note: [first?.address ? t('from {{address}}', { address: first.address }) : '', took(madeAt, reached)]
        .filter(Boolean)
        .join(', '),
    },
    {
      key: 'certificate',
      label: t('Certificate issued'),
      done: !!issued || connected,
      note: issued && reached ? took(reached, issued) : '',
    },
    {
      key: 'connected',
      label: t('Agent connected'),
      done: connected,
      note: connected ? [cluster?.agentVersion, took(issued, seen)].filter(Boolean).join(', ') : '',
    },
    {
      key: 'inventory',
      label: t('Ready for applications'),
      done: connected && !!cluster?.kubeVersion,
      note: cluster?.kubeVersion ? t('Kubernetes {{kubeVersion}}', { kubeVersion: cluster.kubeVersion }) : '',
    },
  ];
  const next = all.find((s) => !s.done)?.key;
  return all.map(({ key, label, done, note }) => {
    if (failed?.step === key) return { key, label, state: 'failed', note: cluster?.refusal?.message ?? '' };
    if (done) return { key, label, state: 'done', note };
    return { key, label, state: !failed && key === next ? 'running' : 'open', note };
  });
}

const acts: Record<string, string> = {
  create: t('Add the cluster'),
  update: t('Change the cluster'),
  delete: t('Remove the cluster'),
  enroll: t('Make a join token'),
  revoke: t('Revoke the certificates of the agent'),
  upgrade: t('Upgrade the agent'),
  pause: t('Pause automation'),
  resume: t('Resume automation'),
  keep: t('Decide which of two Kubernetes clusters keeps the identity'),
  'accept-hub': t('Accept the state of the hub'),
};

/** The acts of the audit log on a cluster, in words; an action that is not known stays as it is. */
export const actWords = (action: string, object: string) => acts[action] ?? `${action} ${object}`;
