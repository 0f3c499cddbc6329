import { Badge, Group, Stack, Table, Text, TextInput, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Screen } from '../../ui/states';
import { settingQueries } from './api';
import { Editor } from './editor';
import { glimpse, has, type Row, rows } from './model';

/** The settings of the tenant, in the words of Argo CD's ConfigMaps. */
export function SettingsPage() {
  const [search, setSearch] = useState('');
  const [open, setOpen] = useState<Row>();
  const settings = useQuery(settingQueries.list());
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Settings</Title>
        <TextInput
          aria-label="Search"
          placeholder="Search"
          value={search}
          onChange={(e) => setSearch(e.currentTarget.value)}
        />
      </Group>
      <Text size="sm" c="dimmed">
        They keep the names that Argo CD gives them: <code>capstan apply -f</code> takes its ConfigMaps as they are.
      </Text>
      <Screen query={settings}>
        {(d) => <Keys all={rows(d.items, d.known).filter((r) => has(r, search))} open={setOpen} />}
      </Screen>
      {open && settings.data && (
        <Editor
          key={`${open.map} ${open.key}`}
          row={open}
          version={settings.data.version}
          close={() => setOpen(undefined)}
        />
      )}
    </Stack>
  );
}

function Keys({ all, open }: { all: Row[]; open: (row: Row) => void }) {
  const denied = useDenied('settings', 'update');
  if (all.length === 0) return <Text>No key matches.</Text>;
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Key</Table.Th>
            <Table.Th>Value</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th>Changed</Table.Th>
            <Table.Th aria-label="Actions" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {all.map((row) => (
            <Line key={`${row.map} ${row.key} ${row.family}`} row={row} denied={denied} open={() => open(row)} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Line({ row, denied, open }: { row: Row; denied: string; open: () => void }) {
  const { setting } = row;
  return (
    <Table.Tr>
      <Table.Td>
        <Text size="sm" fw={600} style={{ overflowWrap: 'anywhere' }}>
          {row.key}
          {row.family && <i>{row.rest.short}</i>}
        </Text>
        <Text size="xs" c="dimmed">
          {row.map}
          {row.about && ` · ${row.about}`}
        </Text>
      </Table.Td>
      <Table.Td maw={280}>
        <Text size="sm" truncate ff={setting?.secret ? 'text' : 'monospace'}>
          {glimpse(setting)}
        </Text>
      </Table.Td>
      <Table.Td>
        {setting ? (
          <Badge variant="light" color={row.used ? 'teal' : 'gray'}>
            {row.used ? 'In use' : 'No effect'}
          </Badge>
        ) : (
          <Text size="xs" c="dimmed">
            {row.family ? `One per ${row.rest.label.toLowerCase()}` : 'Default'}
          </Text>
        )}
      </Table.Td>
      <Table.Td title={exact(setting?.updatedAt)}>
        {setting && `${ago(setting.updatedAt, Date.now())} by ${setting.updatedBy}`}
      </Table.Td>
      <Table.Td>
        <ActionButton
          size="xs"
          variant="light"
          why={denied}
          aria-label={`${setting ? 'Edit' : 'Set'} ${row.key || row.map}`}
          onClick={open}
        >
          {setting ? 'Edit' : 'Set'}
        </ActionButton>
      </Table.Td>
    </Table.Tr>
  );
}
