import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { IconCheck } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import type { Application } from '../../api/client';
import { useDenied } from '../../api/session';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { type AppKey, appMutations } from './api';
import { projectOf } from './model';

/** Approves what an operation deletes, after showing what that is. */
export function ApproveButton({ appKey, app }: { appKey: AppKey; app: Application }) {
  const approve = useMutation(appMutations.approve(appKey));
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState('');
  const denied = useDenied('applications', 'update', projectOf(app));
  const confirm = () => approve.mutate(reason, { onSuccess: () => setOpen(false) });
  return (
    <>
      <ActionButton
        color="orange"
        leftSection={<IconCheck size={16} aria-hidden />}
        why={denied}
        onClick={() => setOpen(true)}
      >
        {t('Approve deletion')}
      </ActionButton>
      <Modal
        opened={open}
        onClose={() => setOpen(false)}
        title={t('Approve what is deleted in {{name}}?', { name: app.metadata.name })}
      >
        <Stack>
          <Text>{app.status?.operationState?.message}</Text>
          <TextInput label={t('Reason')} value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setOpen(false)}>
              {t('Cancel')}
            </Button>
            <ActionButton color="red" why={denied} loading={approve.isPending} onClick={confirm}>
              {t('Delete these objects')}
            </ActionButton>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
