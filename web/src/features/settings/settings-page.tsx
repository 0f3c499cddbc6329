import { SegmentedControl, Stack, Table, Text, TextInput, useMantineColorScheme } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Page, SectionTitle } from '../../ui/page';
import { QuotaTable } from '../../ui/quotas';
import { Nothing, Screen } from '../../ui/states';
import { settingQueries } from './api';
import { Editor } from './editor';
import { glimpse, has, type Row, rows } from './model';
import { topicOf, topics } from './topics';

const tabs = [
  { key: 'all', label: 'All keys' },
  ...topics.map(({ key, label }) => ({ key: key as string, label: label as string })),
  { key: 'advanced', label: 'Advanced' },
  { key: 'quotas', label: 'Quotas' },
];

/** The settings of the tenant, in the words of Argo CD's ConfigMaps. */
export function SettingsPage() {
  const search = useSearch({ from: '/shell/settings' });
  const navigate = useNavigate({ from: '/settings' });
  const set = (change: Partial<Record<'tab' | 'q' | 'edit', string | undefined>>) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const denied = useDenied('settings', 'get');
  const settings = useQuery({ ...settingQueries.list(), enabled: !denied });
  const tab = tabs.find((t) => t.key === search.tab)?.key ?? 'all';
  const all = settings.data ? rows(settings.data.items, settings.data.known) : [];
  const open = all.find((r) => keyOf(r) === search.edit);
  return (
    <Page
      title="Settings"
      about={
        <>
          They keep the names of Argo CD: <code>capstan apply -f</code> takes its ConfigMaps as they are.
        </>
      }
      tabs={tabs}
      tab={tab}
      open={(next) => set({ tab: next, edit: undefined })}
    >
      {denied ? (
        <Nothing title="You may not see the settings.">{denied}</Nothing>
      ) : tab === 'quotas' ? (
        <Quotas />
      ) : (
        <Stack>
          {tab === 'appearance' && <Look />}
          <TextInput
            aria-label="Search"
            placeholder="A key, or what it is about"
            leftSection={<IconSearch size={16} aria-hidden />}
            value={search.q ?? ''}
            onChange={(e) => set({ q: e.currentTarget.value })}
          />
          <Screen query={settings}>
            {() => (
              <Keys
                all={all.filter((r) => has(r, search.q ?? '') && (tab === 'all' || topicOf(r) === tab))}
                open={(r) => set({ edit: keyOf(r) })}
              />
            )}
          </Screen>
        </Stack>
      )}
      {open && settings.data && (
        <Editor key={keyOf(open)} row={open} version={settings.data.version} close={() => set({ edit: undefined })} />
      )}
    </Page>
  );
}

/** What the address calls a line. */
const keyOf = (row: Row) => `${row.map}/${row.key}${row.family ? '*' : ''}`;

/** How the console looks for whoever uses this browser. */
function Look() {
  const scheme = useMantineColorScheme();
  return (
    <section aria-label="This browser">
      <SectionTitle>This browser</SectionTitle>
      <SegmentedControl
        aria-label="Colours"
        value={scheme.colorScheme}
        data={[
          { value: 'auto', label: 'As the system' },
          { value: 'light', label: 'Light' },
          { value: 'dark', label: 'Dark' },
        ]}
        onChange={(v) => scheme.setColorScheme(v === 'light' || v === 'dark' ? v : 'auto')}
      />
    </section>
  );
}

function Quotas() {
  const usage = useQuery(settingQueries.usage());
  return (
    <Screen query={usage}>
      {(d) => (
        <Stack>
          <Text c="dimmed">
            Platform admins set the limits. At a limit nothing can be added; what is there goes on.
          </Text>
          <QuotaTable items={d.items} />
        </Stack>
      )}
    </Screen>
  );
}

function Keys({ all, open }: { all: Row[]; open: (row: Row) => void }) {
  const denied = useDenied('settings', 'update');
  if (all.length === 0) return <Nothing title="No key matches." />;
  return (
    <div className="wide">
      <Table highlightOnHover aria-label="Settings">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Key</Table.Th>
            <Table.Th className="second">Value</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th className="second">Changed</Table.Th>
            <Table.Th aria-label="Actions" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {all.map((row) => (
            <Line key={keyOf(row)} row={row} denied={denied} open={() => open(row)} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Line({ row, denied, open }: { row: Row; denied: string; open: () => void }) {
  const { setting } = row;
  return (
    <Table.Tr>
      <Table.Td>
        <Text size="sm" fw={500} className="breakable">
          {row.key}
          {row.family && <i>{row.rest.short}</i>}
        </Text>
        <Text size="xs" c="dimmed">
          {row.map}
          {row.about && ` · ${row.about}`}
        </Text>
      </Table.Td>
      <Table.Td className="second" maw={280}>
        <Text size="sm" truncate ff={setting?.secret ? 'text' : 'monospace'}>
          {glimpse(setting)}
        </Text>
      </Table.Td>
      <Table.Td>
        {setting ? (
          <StateMark
            look={
              row.used
                ? { label: 'In use', tone: 'ok', shape: 'done' }
                : { label: 'No effect', tone: 'unknown', shape: 'absent' }
            }
            weight="quiet"
          />
        ) : (
          <Text size="xs" c="dimmed">
            {row.family ? `One per ${row.rest.label.toLowerCase()}` : 'Default'}
          </Text>
        )}
      </Table.Td>
      <Table.Td className="second" title={exact(setting?.updatedAt)}>
        {setting && `${ago(setting.updatedAt, Date.now())} by ${setting.updatedBy}`}
      </Table.Td>
      <Table.Td>
        <ActionButton
          size="compact-sm"
          variant="default"
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
