import { Button, Group, Modal, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { noticeMutations } from '../api/notices';
import { useDenied } from '../api/session';
import { t } from '../texts';
import { ActionButton } from './action-button';
import { Problem } from './states';

const lengths = [
  { value: '1h', label: t('1 hour') },
  { value: '4h', label: t('4 hours') },
  { value: '24h', label: t('1 day') },
  { value: '7d', label: t('7 days') },
];

/** Pauses the automation of a cluster, or of the tenant without one. */
export function PauseDialog({ cluster, close }: { cluster?: string; close: () => void }) {
  const denied = useDenied('clusters', 'override');
  const [reason, setReason] = useState('');
  const [length, setLength] = useState('1h');
  const pause = useMutation(noticeMutations.pause());
  return (
    <Modal
      opened
      onClose={close}
      title={cluster ? t('Pause automation on {{cluster}}', { cluster }) : t('Pause all automation')}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (denied || !reason.trim()) return;
          pause.mutate({ ...(cluster ? { cluster } : {}), reason, for: length }, { onSuccess: close });
        }}
      >
        <Stack>
          {pause.error && <Problem error={pause.error} />}
          <Text size="sm">
            {cluster
              ? t(
                  'Nothing is synced or healed by itself there until then. People may still sync. Everybody concerned sees why.',
                )
              : t(
                  'Nothing is synced or healed by itself on any cluster until then. People may still sync. Everybody concerned sees why.',
                )}
          </Text>
          <TextInput
            label={t('Reason')}
            required
            data-autofocus
            maxLength={150}
            value={reason}
            onChange={(e) => setReason(e.currentTarget.value)}
          />
          <SegmentedControl aria-label={t('For how long')} value={length} data={lengths} onChange={setLength} />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!reason.trim()} loading={pause.isPending}>
              {t('Pause automation')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
