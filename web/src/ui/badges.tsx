import { Badge, Tooltip } from '@mantine/core';
import type { Application } from '../api/client';

type Status = NonNullable<Application['status']>;
type Sync = NonNullable<Status['sync']>['status'];
type Health = NonNullable<Status['health']>['status'];

const syncWords: Record<Sync, { label: string; color: string; hint: string }> = {
  Synced: { label: 'In sync', color: 'teal', hint: 'The cluster holds what Git says.' },
  OutOfSync: { label: 'Drifted', color: 'yellow', hint: 'The cluster differs from what Git says.' },
  Unknown: { label: 'Unknown', color: 'gray', hint: 'Not compared yet, or the comparison failed.' },
};

const healthColors: Record<Health, string> = {
  Healthy: 'teal',
  Progressing: 'blue',
  Suspended: 'violet',
  Missing: 'yellow',
  Degraded: 'red',
  Unknown: 'gray',
};

/** Desired against live. Grey when the agent has not been heard lately. */
export function DriftBadge({ status, stale }: { status: Sync | undefined; stale?: boolean }) {
  const word = syncWords[status ?? 'Unknown'];
  return (
    <Tooltip label={stale ? `${word.hint} The agent is away, so this may be old.` : word.hint}>
      <Badge
        variant={stale ? 'outline' : 'light'}
        color={stale ? 'gray' : word.color}
        data-status={status ?? 'Unknown'}
      >
        {word.label}
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
  return (
    <Tooltip label={cause || shown} multiline maw={480}>
      <Badge variant={stale ? 'outline' : 'dot'} color={stale ? 'gray' : healthColors[shown]}>
        {shown}
      </Badge>
    </Tooltip>
  );
}
