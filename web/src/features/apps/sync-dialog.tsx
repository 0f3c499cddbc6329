import { Button, Checkbox, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import type { Application } from '../../api/client';
import { useDenied } from '../../api/session';
import { shortRevision } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Problem } from '../../ui/states';
import { type AppKey, appMutations } from './api';
import { projectOf } from './model';

/** Asks how to sync, and starts it. */
export function SyncDialog(props: { appKey: AppKey; app: Application; opened: boolean; close: () => void }) {
  const { appKey, app, opened, close } = props;
  const [prune, setPrune] = useState(app.spec.syncPolicy?.automated?.prune ?? false);
  const [dryRun, setDryRun] = useState(false);
  const [reason, setReason] = useState('');
  const denied = useDenied('applications', 'sync', projectOf(app));
  const sync = useMutation(appMutations.sync(appKey));
  const start = () => sync.mutate({ prune, dryRun, ...(reason ? { reason } : {}) }, { onSuccess: close });
  return (
    <Modal opened={opened} onClose={close} title={`Sync ${app.metadata.name}`}>
      <Stack>
        {sync.error && <Problem error={sync.error} />}
        <Text size="sm">
          Applies revision <code>{shortRevision(app.status?.sync?.revision)}</code> to the cluster.
        </Text>
        <Checkbox
          label="Prune: delete objects that are no longer in Git"
          checked={prune}
          onChange={(e) => setPrune(e.currentTarget.checked)}
        />
        <Checkbox
          label="Dry run: ask the cluster, change nothing"
          checked={dryRun}
          onChange={(e) => setDryRun(e.currentTarget.checked)}
        />
        <TextInput
          label="Reason"
          placeholder="kept in the history"
          value={reason}
          onChange={(e) => setReason(e.currentTarget.value)}
        />
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            Cancel
          </Button>
          <ActionButton why={denied} onClick={start} loading={sync.isPending}>
            {dryRun ? 'Start dry run' : 'Start sync'}
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
