import type { Application, Node } from '../../api/client';
import { t } from '../../texts';
import type { ShapeName, Tone } from '../../ui/shapes';

/** What a user calls an application by, and what lists are keyed with. */
export function keyOf(app: Application): string {
  return `${app.metadata.namespace ?? 'argocd'}/${app.metadata.name}`;
}

/** The project of an application. */
export function projectOf(app: Application): string {
  return app.spec.project || 'default';
}

/** The cluster of an application, as people call it. */
export function clusterOf(app: Application): string {
  return app.status?.capstan?.cluster ?? app.spec.destination?.name ?? app.spec.destination?.server ?? '';
}

/** When the last operation of an application ended, or began if it runs. */
export function changedAt(app: Application): string | undefined {
  return app.status?.operationState?.finishedAt ?? app.status?.operationState?.startedAt;
}

/** State is stale when the agent that reports it is away, or has not delivered for long. */
export function isStale(app: Application): boolean {
  const reason = app.status?.capstan?.stale?.reason;
  return reason === 'AgentAway' || reason === 'AgentBehind';
}

/** How the agent that reports an application looks. */
export function agentLook(app: Application): { label: string; tone: Tone; shape: ShapeName } {
  const connection = app.status?.capstan?.connection;
  if (isStale(app)) {
    return { label: connection === 'Connected' ? t('Behind') : t('Disconnected'), tone: 'unknown', shape: 'away' };
  }
  switch (connection) {
    case 'Connected':
      return { label: t('Connected'), tone: 'ok', shape: 'plug' };
    case 'NeverConnected':
      return { label: t('Never connected'), tone: 'unknown', shape: 'absent' };
    case 'NoCluster':
      return { label: t('No cluster'), tone: 'unknown', shape: 'absent' };
    case 'Disconnected':
      return { label: t('Disconnected'), tone: 'unknown', shape: 'away' };
    default:
      return { label: t('Unknown'), tone: 'unknown', shape: 'unknown' };
  }
}

export type State = NonNullable<NonNullable<NonNullable<Application['status']>['capstan']>['headline']>['state'];

/** The worst that is true of an application; see Headline of the API. */
export function headlineOf(app: Application): { state: State; message: string; since: string | undefined } {
  const h = app.status?.capstan?.headline;
  return { state: h?.state ?? 'Unknown', message: h?.message ?? '', since: h?.since };
}

/** Whether the health of an application says less than there is to know: it must not look well then. */
export function outweighed(app: Application): boolean {
  return ['Deleting', 'Stale', 'SyncFailed', 'SourceError', 'NotDeployed', 'Missing'].includes(headlineOf(app).state);
}

export interface OperationWord {
  word: string;
  tone: Tone;
  shape: ShapeName;
  detail: string;
}

type Operation = NonNullable<NonNullable<Application['status']>['operationState']>;

/** The kinds of operations in words. */
export const operationKinds: Record<Operation['kind'], string> = {
  sync: t('sync'),
  rollback: t('rollback'),
  delete: t('delete'),
};

const phaseWords: Readonly<Record<string, string>> = {
  Pending: t('Pending'),
  Running: t('Running'),
  Terminating: t('Terminating'),
  Succeeded: t('Succeeded'),
  Failed: t('Failed'),
  Error: t('Error'),
};

/** The phase of an operation or of a hook in words; one that is not known stays as it is. */
export const phaseWord = (phase: string) => phaseWords[phase] ?? phase;

/** The last operation in the words of the console. */
export function operationWord(app: Application): OperationWord {
  const op = app.status?.operationState;
  if (!op) return { word: t('Idle'), tone: 'unknown', shape: 'absent', detail: t('Nothing has been deployed yet.') };
  const kind = operationKinds[op.kind];
  const by = op.operation?.initiatedBy;
  const what = by?.automated
    ? t('{{kind}} by automation', { kind })
    : t('{{kind}} by {{user}}', { kind, user: by?.username ?? t('unknown') });
  const detail = [what, op.message].filter(Boolean).join(': ');
  switch (op.phase) {
    case 'Pending':
      return {
        word: t('Waiting'),
        tone: 'working',
        shape: 'hand',
        detail: t('{{detail}} – waiting for the agent', { detail }),
      };
    case 'Running':
      return { word: t('Running'), tone: 'working', shape: 'running', detail };
    case 'Terminating':
      return { word: t('Terminating'), tone: 'working', shape: 'leaving', detail };
    case 'Succeeded':
      return { word: t('Succeeded'), tone: 'ok', shape: 'done', detail };
    case 'Failed':
    case 'Error':
      return op.retryAt
        ? { word: t('Retrying'), tone: 'working', shape: 'running', detail }
        : { word: t('Failed'), tone: 'failed', shape: 'failed', detail };
    default:
      return op.phase satisfies never;
  }
}

/** Whether an operation is under way, so that another cannot be started. */
export function busy(app: Application): boolean {
  const phase = app.status?.operationState?.phase;
  return phase === 'Pending' || phase === 'Running' || phase === 'Terminating';
}

export function nodeId(node: Node): string {
  return node.uid || [node.group, node.kind, node.namespace ?? '', node.name].join('/');
}

const conditions = new Map([
  ['ComparisonError', t('The desired state cannot be worked out')],
  ['SyncError', t('The last sync failed')],
  ['InvalidSpecError', t('The application is not valid')],
  ['DeletionError', t('The deletion does not go on')],
  ['SharedResourceWarning', t('An object belongs to another application too')],
  ['RepeatedResourceWarning', t('An object is there twice')],
  ['ExcludedResourceWarning', t('Some objects are excluded')],
  ['OrphanedResourceWarning', t('The namespace holds objects of nobody')],
]);

/** The type of a condition as a sentence; one that is not known stays as it is. */
export function conditionWords(type: string): string {
  return conditions.get(type) ?? type;
}

/** Whether a node is an application of its own that the application renders. */
export function isChildApplication(node: Node): boolean {
  return node.group === 'argoproj.io' && node.kind === 'Application';
}
