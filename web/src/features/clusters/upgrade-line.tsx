import { Text } from '@mantine/core';
import type { Cluster } from '../../api/client';
import { exact } from '../../format/format';
import { t } from '../../texts';

const words = {
  Pending: t('Upgrade waits for the agent'),
  Running: t('Upgrade is under way'),
  Succeeded: t('Upgrade succeeded'),
  RolledBack: t('Upgrade was taken back'),
  Failed: t('Upgrade failed'),
} as const;

/** How the newest upgrade of an agent stands, in one line. */
export function UpgradeLine({ upgrade }: { upgrade: Cluster['upgrade'] }) {
  if (!upgrade) return null;
  return (
    <Text
      size="xs"
      c={upgrade.phase === 'RolledBack' || upgrade.phase === 'Failed' ? 'var(--failed-text)' : 'dimmed'}
      title={t('{{image}}, ordered by {{by}} {{time}}', {
        image: upgrade.image,
        by: upgrade.by,
        time: exact(upgrade.orderedAt),
      })}
    >
      {words[upgrade.phase]}
      {upgrade.message && `: ${upgrade.message}`}
    </Text>
  );
}
