import { Badge, Tooltip } from '@mantine/core';
import {
  IconAlertTriangle,
  IconCheck,
  IconGhost,
  IconHandStop,
  IconHeartBroken,
  IconHeartFilled,
  IconHelp,
  IconLoader2,
  IconPlayerPause,
  IconPlugConnectedX,
  IconTrash,
  IconX,
} from '@tabler/icons-react';
import type { Application } from '../api/client';

type Status = NonNullable<Application['status']>;
type Sync = NonNullable<Status['sync']>['status'];
type Health = NonNullable<Status['health']>['status'];
type State = NonNullable<NonNullable<Status['capstan']>['headline']>['state'];

const syncWords: Record<Sync, { label: string; color: string; hint: string; Icon: typeof IconCheck }> = {
  Synced: { label: 'In sync', color: 'teal', hint: 'The cluster holds what Git says.', Icon: IconCheck },
  OutOfSync: {
    label: 'Drifted',
    color: 'yellow',
    hint: 'The cluster differs from what Git says.',
    Icon: IconAlertTriangle,
  },
  Unknown: { label: 'Unknown', color: 'gray', hint: 'Not compared yet, or the comparison failed.', Icon: IconHelp },
};

const healthLooks: Record<Health, { color: string; Icon: typeof IconCheck }> = {
  Healthy: { color: 'teal', Icon: IconHeartFilled },
  Progressing: { color: 'blue', Icon: IconLoader2 },
  Suspended: { color: 'violet', Icon: IconPlayerPause },
  Missing: { color: 'yellow', Icon: IconGhost },
  Degraded: { color: 'red', Icon: IconHeartBroken },
  Unknown: { color: 'gray', Icon: IconHelp },
};

/** Desired against live. Grey when the agent has not been heard lately. */
export function DriftBadge({
  status,
  stale,
  why,
}: {
  status: Sync | undefined;
  stale?: boolean;
  why?: string | undefined;
}) {
  const word = syncWords[status ?? 'Unknown'];
  const hint = why || word.hint;
  return (
    <Tooltip label={stale ? `${hint} This is not current.` : hint} multiline maw={480}>
      <Badge
        variant={stale ? 'outline' : 'light'}
        color={stale ? 'gray' : word.color}
        data-status={status ?? 'Unknown'}
        leftSection={<word.Icon size={12} aria-hidden />}
      >
        {word.label}
      </Badge>
    </Tooltip>
  );
}

const stateLooks: Record<State, { label: string; color: string; Icon: typeof IconCheck }> = {
  Deleting: { label: 'Deleting', color: 'blue', Icon: IconTrash },
  Stale: { label: 'Agent away', color: 'gray', Icon: IconPlugConnectedX },
  SyncFailed: { label: 'Sync failed', color: 'red', Icon: IconX },
  Degraded: { label: 'Degraded', color: 'red', Icon: IconHeartBroken },
  SourceError: { label: 'Source error', color: 'red', Icon: IconAlertTriangle },
  AwaitingApproval: { label: 'Needs approval', color: 'yellow', Icon: IconHandStop },
  Syncing: { label: 'Syncing', color: 'blue', Icon: IconLoader2 },
  NotDeployed: { label: 'Not deployed', color: 'gray', Icon: IconGhost },
  Missing: { label: 'Objects missing', color: 'yellow', Icon: IconGhost },
  Paused: { label: 'Paused', color: 'violet', Icon: IconPlayerPause },
  Progressing: { label: 'Rolling out', color: 'blue', Icon: IconLoader2 },
  OutOfSync: { label: 'Out of sync', color: 'yellow', Icon: IconAlertTriangle },
  Suspended: { label: 'On hold', color: 'violet', Icon: IconPlayerPause },
  Unknown: { label: 'Not known', color: 'gray', Icon: IconHelp },
  Healthy: { label: 'OK', color: 'teal', Icon: IconCheck },
};

/** The states in words, for counts. */
export const stateLabel = (state: State) => stateLooks[state].label;

/** The one thing to know of an application, with the reason on hover. */
export function StateBadge({ state, message }: { state: State; message?: string | undefined }) {
  const { label, color, Icon } = stateLooks[state];
  return (
    <Tooltip label={message || label} multiline maw={480}>
      <Badge variant="light" color={color} data-state={state} leftSection={<Icon size={12} aria-hidden />}>
        {label}
      </Badge>
    </Tooltip>
  );
}

/** How well the application or object is, with its worst cause on hover. */
export function HealthBadge({
  status,
  cause,
  stale,
}: {
  status: Health | undefined;
  cause?: string | undefined;
  stale?: boolean;
}) {
  const shown = status ?? 'Unknown';
  const { color, Icon } = healthLooks[shown];
  return (
    <Tooltip label={cause || shown} multiline maw={480}>
      <Badge
        variant={stale ? 'outline' : 'light'}
        color={stale ? 'gray' : color}
        leftSection={<Icon size={12} aria-hidden />}
      >
        {shown}
      </Badge>
    </Tooltip>
  );
}
