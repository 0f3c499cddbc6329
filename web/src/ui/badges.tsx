import { Badge, Tooltip } from '@mantine/core';
import {
  IconAlertTriangle,
  IconCheck,
  IconGhost,
  IconHeartBroken,
  IconHeartFilled,
  IconHelp,
  IconLoader2,
  IconPlayerPause,
} from '@tabler/icons-react';
import type { Application } from '../api/client';

type Status = NonNullable<Application['status']>;
type Sync = NonNullable<Status['sync']>['status'];
type Health = NonNullable<Status['health']>['status'];

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
export function DriftBadge({ status, stale }: { status: Sync | undefined; stale?: boolean }) {
  const word = syncWords[status ?? 'Unknown'];
  return (
    <Tooltip label={stale ? `${word.hint} The agent is away, so this may be old.` : word.hint}>
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
