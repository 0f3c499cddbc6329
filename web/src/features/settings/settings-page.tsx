import { Button, SegmentedControl, Stack, Table, Text, TextInput, useMantineColorScheme } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { Rich, t } from '../../texts';
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
  { key: 'all', label: t('All keys') },
  ...topics.map(({ key, label }) => ({ key: key as string, label: label as string })),
  { key: 'advanced', label: t('Advanced') },
  { key: 'quotas', label: t('Quotas') },
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
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'all';
  const all = settings.data ? rows(settings.data.items, settings.data.known) : [];
  const open = all.find((r) => keyOf(r) === search.edit);
  return (
    <Page
      title={t('Settings')}
      about={
        <Rich
          text="They keep the names of Argo CD: <code>capstan apply -f</code> takes its ConfigMaps as they are."
          parts={{ code: <code /> }}
        />
      }
      actions={
        <Button component={Link} to="/settings/notifications" variant="default">
          {t('Notifications')}
        </Button>
      }
      tabs={tabs}
      tab={tab}
      open={(next) => set({ tab: next, edit: undefined })}
    >
      {denied ? (
        <Nothing title={t('You may not see the settings.')}>{denied}</Nothing>
      ) : tab === 'quotas' ? (
        <Quotas />
      ) : (
        <Stack>
          {tab === 'appearance' && <Look />}
          <TextInput
            aria-label={t('Search')}
            placeholder={t('A key, or what it is about')}
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
    <section aria-label={t('This browser')}>
      <SectionTitle>{t('This browser')}</SectionTitle>
      <SegmentedControl
        aria-label={t('Colours')}
        value={scheme.colorScheme}
        data={[
          { value: 'auto', label: t('As the system') },
          { value: 'light', label: t('Light') },
          { value: 'dark', label: t('Dark') },
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
            {t('Platform admins set the limits. At a limit nothing can be added; what is there goes on.')}
          </Text>
          <QuotaTable items={d.items} />
        </Stack>
      )}
    </Screen>
  );
}

function Keys({ all, open }: { all: Row[]; open: (row: Row) => void }) {
  const denied = useDenied('settings', 'update');
  if (all.length === 0) return <Nothing title={t('No key matches.')} />;
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('Settings')}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Key')}</Table.Th>
            <Table.Th className="second">{t('Value')}</Table.Th>
            <Table.Th>{t('State')}</Table.Th>
            <Table.Th className="second">{t('Changed')}</Table.Th>
            <Table.Th aria-label={t('Actions')} />
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
                ? { label: t('In use'), tone: 'ok', shape: 'done' }
                : { label: t('No effect'), tone: 'unknown', shape: 'absent' }
            }
            weight="quiet"
          />
        ) : (
          <Text size="xs" c="dimmed">
            {row.family ? row.rest.each : t('Default')}
          </Text>
        )}
      </Table.Td>
      <Table.Td className="second" title={exact(setting?.updatedAt)}>
        {setting &&
          t('{{time}} by {{updatedBy}}', { time: ago(setting.updatedAt, Date.now()), updatedBy: setting.updatedBy })}
      </Table.Td>
      <Table.Td>
        <ActionButton
          size="compact-sm"
          variant="default"
          why={denied}
          aria-label={
            setting ? t('Edit {{name}}', { name: row.key || row.map }) : t('Set {{name}}', { name: row.key || row.map })
          }
          onClick={open}
        >
          {setting ? t('Edit') : t('Set')}
        </ActionButton>
      </Table.Td>
    </Table.Tr>
  );
}
