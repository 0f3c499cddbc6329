import { Tooltip } from '@mantine/core';
import { memo } from 'react';
import type { Application } from '../api/client';
import { t } from '../texts';
import { Shape, type ShapeName, type Tone } from './shapes';

type Status = NonNullable<Application['status']>;
type Sync = NonNullable<Status['sync']>['status'];
type Health = NonNullable<Status['health']>['status'];
type Automation = NonNullable<NonNullable<Status['capstan']>['automation']>;
type State = NonNullable<NonNullable<Status['capstan']>['headline']>['state'];

export interface Look {
  label: string;
  tone: Tone;
  shape: ShapeName;
}

/** How a state is shown: without a ground in lists, where what is well is quiet, or on a ground in heads of pages. */
export type Weight = 'quiet' | 'ground';

/** A state: always a shape, a word and a colour. */
export function StateMark({
  look,
  hint,
  weight = 'ground',
  stale = false,
  data,
}: {
  look: Look;
  hint?: string | undefined;
  weight?: Weight;
  /** What is shown is not current: it looks unknown, whatever it was. */
  stale?: boolean;
  data?: Record<`data-${string}`, string>;
}) {
  const mark = (
    <span className={`state ${weight}`} data-tone={stale ? 'unknown' : look.tone} data-stale={stale} {...data}>
      <Shape name={look.shape} />
      <span className="word">{look.label}</span>
    </span>
  );
  return hint ? (
    <Tooltip label={hint} multiline maw={480}>
      {mark}
    </Tooltip>
  ) : (
    mark
  );
}

const syncLooks: Record<Sync, Look & { hint: string }> = {
  Synced: { label: t('In sync'), tone: 'ok', shape: 'equal', hint: t('The cluster has what Git says.') },
  OutOfSync: { label: t('Drifted'), tone: 'attention', shape: 'different', hint: t('The cluster differs from Git.') },
  Unknown: {
    label: t('Unknown'),
    tone: 'unknown',
    shape: 'unknown',
    hint: t('Not compared yet, or the comparison failed.'),
  },
};

const healthLooks: Record<Health, Look> = {
  Healthy: { label: t('Healthy'), tone: 'ok', shape: 'healthy' },
  Progressing: { label: t('Progressing'), tone: 'working', shape: 'progressing' },
  Suspended: { label: t('Suspended'), tone: 'paused', shape: 'suspended' },
  Missing: { label: t('Missing'), tone: 'attention', shape: 'missing' },
  Degraded: { label: t('Degraded'), tone: 'failed', shape: 'degraded' },
  Unknown: { label: t('Unknown'), tone: 'unknown', shape: 'unknown' },
};

const stateLooks: Record<State, Look> = {
  Deleting: { label: t('Deleting'), tone: 'working', shape: 'leaving' },
  Stale: { label: t('Agent away'), tone: 'unknown', shape: 'away' },
  SyncFailed: { label: t('Sync failed'), tone: 'failed', shape: 'failed' },
  Degraded: { label: t('Degraded'), tone: 'failed', shape: 'degraded' },
  SourceError: { label: t('Source error'), tone: 'failed', shape: 'failed' },
  AwaitingApproval: { label: t('Needs approval'), tone: 'attention', shape: 'waiting' },
  Syncing: { label: t('Syncing'), tone: 'working', shape: 'running' },
  NotDeployed: { label: t('Not deployed'), tone: 'unknown', shape: 'absent' },
  Missing: { label: t('Objects missing'), tone: 'attention', shape: 'missing' },
  Paused: { label: t('Paused'), tone: 'paused', shape: 'suspended' },
  Progressing: { label: t('Rolling out'), tone: 'working', shape: 'progressing' },
  OutOfSync: { label: t('Out of sync'), tone: 'attention', shape: 'different' },
  Suspended: { label: t('On hold'), tone: 'paused', shape: 'suspended' },
  Unknown: { label: t('Not known'), tone: 'unknown', shape: 'unknown' },
  Healthy: { label: t('OK'), tone: 'ok', shape: 'healthy' },
};

/** The looks of drift and health in the order in which they are listed, the worst first. */
export const syncOrder: [Sync, Look][] = (['OutOfSync', 'Unknown', 'Synced'] as const).map((s) => [s, syncLooks[s]]);
export const healthOrder: [Health, Look][] = (
  ['Degraded', 'Missing', 'Progressing', 'Suspended', 'Unknown', 'Healthy'] as const
).map((h) => [h, healthLooks[h]]);

/** The headlines that somebody has to act on, the most urgent first. */
export const urgentStates = [
  'SyncFailed',
  'Degraded',
  'SourceError',
  'AwaitingApproval',
  'Stale',
  'Missing',
  'Paused',
] as const satisfies State[];
export const stateOrder: [State, Look][] = urgentStates.map((s) => [s, stateLooks[s]]);

/** The looks of last operations, as queries name them. */
export const operationOrder: [string, Look][] = [
  ['failed', { label: t('Failed'), tone: 'failed', shape: 'failed' }],
  ['error', { label: t('Error'), tone: 'failed', shape: 'barred' }],
  ['approval', { label: t('Needs approval'), tone: 'attention', shape: 'waiting' }],
  ['running', { label: t('Running'), tone: 'working', shape: 'running' }],
  ['pending', { label: t('Waiting'), tone: 'working', shape: 'hand' }],
  ['terminating', { label: t('Terminating'), tone: 'working', shape: 'leaving' }],
  ['succeeded', { label: t('Succeeded'), tone: 'ok', shape: 'done' }],
  ['none', { label: t('None yet'), tone: 'unknown', shape: 'absent' }],
];

/** How applications say whether they deploy by themselves. */
export const automationLooks: Record<Automation, Look> = {
  Auto: { label: t('Automatic'), tone: 'unknown', shape: 'running' },
  Waiting: { label: t('Automatic, waiting'), tone: 'attention', shape: 'hand' },
  Manual: { label: t('Manual'), tone: 'unknown', shape: 'absent' },
  Paused: { label: t('Paused'), tone: 'paused', shape: 'suspended' },
};

/** The states in words, for counts. */
export const stateLabel = (state: State) => stateLooks[state].label;

/** Desired against live. Grey when the agent has not been heard lately. */
export const DriftBadge = memo(function DriftBadge({
  status,
  stale = false,
  why,
  weight,
}: {
  status: Sync | undefined;
  stale?: boolean;
  why?: string | undefined;
  weight?: Weight;
}) {
  const look = syncLooks[status ?? 'Unknown'];
  const hint = why || look.hint;
  return (
    <StateMark
      look={look}
      hint={stale ? t('{{hint}} This is not current.', { hint }) : hint}
      stale={stale}
      data={{ 'data-status': status ?? 'Unknown' }}
      {...(weight ? { weight } : {})}
    />
  );
});

/** The one thing to know of an application, with the reason on hover. */
export const StateBadge = memo(function StateBadge({
  state,
  message,
  weight,
}: {
  state: State;
  message?: string | undefined;
  weight?: Weight;
}) {
  const look = stateLooks[state];
  return (
    <StateMark
      look={look}
      hint={message || look.label}
      data={{ 'data-state': state }}
      {...(weight ? { weight } : {})}
    />
  );
});

/** How well the application or object is, with its worst cause on hover. */
export const HealthBadge = memo(function HealthBadge({
  status,
  cause,
  stale = false,
  weight,
}: {
  status: Health | undefined;
  cause?: string | undefined;
  stale?: boolean;
  weight?: Weight;
}) {
  const look = healthLooks[status ?? 'Unknown'];
  return <StateMark look={look} hint={cause || look.label} stale={stale} {...(weight ? { weight } : {})} />;
});
