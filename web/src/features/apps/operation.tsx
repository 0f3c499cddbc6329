import { Badge, Stack, Table, Text } from '@mantine/core';
import type { Application, ObjectResult } from '../../api/client';
import { exact } from '../../format/format';
import { Nothing } from '../../ui/states';
import { operationWord } from './model';

function failedFirst(a: ObjectResult, b: ObjectResult): number {
  return Number(b.status === 'SyncFailed') - Number(a.status === 'SyncFailed');
}

/** The newest operation, object by object, failures on top. */
export function Operation({ app }: { app: Application }) {
  const op = app.status?.operationState;
  if (!op) return <Nothing title="Nothing has been deployed yet." />;
  const results = [...(op.syncResult?.resources ?? [])].sort(failedFirst);
  const word = operationWord(app);
  return (
    <Stack>
      <Text>
        <Badge variant="light" color={word.tone}>
          {word.word}
        </Badge>{' '}
        {word.detail}
      </Text>
      <Text size="sm" c="dimmed">
        Started {exact(op.startedAt)}
        {op.finishedAt ? `, ended ${exact(op.finishedAt)}` : ''}
        {op.healthyAt ? `, healthy ${exact(op.healthyAt)}` : ''}
        {op.reason ? ` – ${op.reason}` : ''}
      </Text>
      {results.length > 0 && (
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Object</Table.Th>
              <Table.Th>Phase</Table.Th>
              <Table.Th>Wave</Table.Th>
              <Table.Th>Result</Table.Th>
              <Table.Th>Message</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {results.map((r) => (
              <Table.Tr key={[r.group, r.kind, r.namespace, r.name, r.syncPhase].join('/')}>
                <Table.Td>
                  {r.kind} {r.namespace ? `${r.namespace}/` : ''}
                  {r.name}
                </Table.Td>
                <Table.Td>{r.hookType || r.syncPhase}</Table.Td>
                <Table.Td>{r.wave ?? 0}</Table.Td>
                <Table.Td>
                  <Badge variant="light" color={r.status === 'SyncFailed' ? 'red' : 'teal'}>
                    {r.hookPhase || r.status}
                  </Badge>
                </Table.Td>
                <Table.Td>{r.message}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Stack>
  );
}
