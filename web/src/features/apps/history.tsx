import { Button, Code, Group, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { stringify } from 'yaml';
import type { Application, HistoryEntry } from '../../api/client';
import { useDenied } from '../../api/session';
import { exact, shortRevision, took } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type AppKey, appMutations, appQueries } from './api';
import { busy, projectOf } from './model';

/** What was deployed, newest first, and the way back. */
export function History({ appKey, app }: { appKey: AppKey; app: Application }) {
  const history = useQuery(appQueries.history(appKey));
  const denied = useDenied('applications', 'rollback', projectOf(app));
  const [chosen, setChosen] = useState<HistoryEntry>();
  return (
    <Screen
      query={history}
      empty={(d) => (d.items.length === 0 ? <Nothing title="Nothing has been deployed yet." /> : undefined)}
    >
      {(d) => (
        <>
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>#</Table.Th>
                <Table.Th>Revision</Table.Th>
                <Table.Th>Commit</Table.Th>
                <Table.Th>Deployed</Table.Th>
                <Table.Th>Took</Table.Th>
                <Table.Th>By</Table.Th>
                <Table.Th>Reason</Table.Th>
                <Table.Th>Action</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((h, i) => (
                <Table.Tr key={h.id}>
                  <Table.Td>{h.id}</Table.Td>
                  <Table.Td>
                    <code>{shortRevision(h.revision)}</code>
                  </Table.Td>
                  <Table.Td maw={320}>
                    <Text size="sm" lineClamp={2} title={h.commit?.message}>
                      {h.commit?.message?.split('\n')[0]}
                    </Text>
                    <Text size="xs" c="dimmed">
                      {h.commit?.author}
                    </Text>
                    <Parameters entry={h} />
                  </Table.Td>
                  <Table.Td>{exact(h.deployedAt)}</Table.Td>
                  <Table.Td>{took(h.deployStartedAt, h.deployedAt)}</Table.Td>
                  <Table.Td>{h.initiatedBy?.automated ? 'automation' : h.initiatedBy?.username}</Table.Td>
                  <Table.Td>{h.reason}</Table.Td>
                  <Table.Td>
                    {i > 0 && (
                      <ActionButton
                        size="xs"
                        variant="light"
                        why={denied || (busy(app) ? 'An operation is in progress.' : '')}
                        onClick={() => setChosen(h)}
                      >
                        Roll back to this
                      </ActionButton>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
          {chosen && (
            <RollbackDialog
              appKey={appKey}
              app={app}
              entry={chosen}
              denied={denied}
              close={() => setChosen(undefined)}
            />
          )}
        </>
      )}
    </Screen>
  );
}

/** The sources as they were, with their parameters. */
function Parameters({ entry }: { entry: HistoryEntry }) {
  const source = entry.sources ?? entry.source;
  if (!source) return null;
  return (
    <details>
      <summary>Parameters</summary>
      <Code block>{stringify(source)}</Code>
    </details>
  );
}

/** What becomes of automation when an application is rolled back. */
export function afterRollback(app: Application): string {
  const until = 'until Git renders something else, or somebody resumes or syncs';
  if (app.status?.capstan?.automation === 'Manual') return `The application is then paused ${until}.`;
  return `Automation is then paused ${until}. It does not have to be switched off first.`;
}

interface RollbackProps {
  appKey: AppKey;
  app: Application;
  entry: HistoryEntry;
  denied: string;
  close: () => void;
}

function RollbackDialog({ appKey, app, entry, denied, close }: RollbackProps) {
  const [reason, setReason] = useState('');
  const rollback = useMutation(appMutations.rollback(appKey));
  return (
    <Modal opened onClose={close} title={`Roll back to ${shortRevision(entry.revision)}`}>
      <Stack>
        {rollback.error && <Problem error={rollback.error} />}
        <Text size="sm">
          The manifests of entry {entry.id} are applied again as they were. {afterRollback(app)}
        </Text>
        <TextInput label="Reason" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            Cancel
          </Button>
          <ActionButton
            why={denied}
            loading={rollback.isPending}
            onClick={() => rollback.mutate({ id: entry.id, reason }, { onSuccess: close })}
          >
            Roll back
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
