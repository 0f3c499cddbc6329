import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { IconCheck } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Application } from '../../api/client';
import { may, meQuery } from '../../api/session';
import { type AppKey, appMutations } from './api';

/** Approves what an operation deletes, after showing what that is. */
export function ApproveButton({ appKey, app }: { appKey: AppKey; app: Application }) {
  const me = useQuery(meQuery);
  const approve = useMutation(appMutations.approve(appKey));
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState('');
  const allowed = may(me.data, 'applications', 'update', app.spec.project || 'default');
  const confirm = () => approve.mutate(reason, { onSuccess: () => setOpen(false) });
  return (
    <>
      <Button
        color="orange"
        leftSection={<IconCheck size={16} aria-hidden />}
        disabled={!allowed}
        onClick={() => setOpen(true)}
      >
        Approve deletion
      </Button>
      <Modal opened={open} onClose={() => setOpen(false)} title={`Approve what is deleted in ${app.metadata.name}?`}>
        <Stack>
          <Text>{app.status?.operationState?.message}</Text>
          <TextInput label="Reason" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setOpen(false)}>
              Cancel
            </Button>
            <Button color="red" loading={approve.isPending} onClick={confirm}>
              Delete these objects
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
