import { Text } from '@mantine/core';
import type { Cluster } from '../../api/client';
import { exact } from '../../format/format';

const words = {
  Pending: 'waits for the agent',
  Running: 'is under way',
  Succeeded: 'succeeded',
  RolledBack: 'was taken back',
  Failed: 'failed',
} as const;

/** How the newest upgrade of an agent stands, in one line. */
export function UpgradeLine({ upgrade }: { upgrade: Cluster['upgrade'] }) {
  if (!upgrade) return null;
  return (
    <Text
      size="xs"
      c={upgrade.phase === 'RolledBack' || upgrade.phase === 'Failed' ? 'var(--failed-text)' : 'dimmed'}
      title={`${upgrade.image}, ordered by ${upgrade.by} ${exact(upgrade.orderedAt)}`}
    >
      Upgrade {words[upgrade.phase]}
      {upgrade.message && `: ${upgrade.message}`}
    </Text>
  );
}
