import { Button, Checkbox, Code, Drawer, SegmentedControl, Stack, Table, Text, TextInput, Title } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useInfiniteQuery, useMutation } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Fragment } from 'react';
import { useDenied } from '../../api/session';
import { exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type AuditRecord, activityMutations, activityQueries, type Search } from './api';
import { byDay, resultLook, timeOfDay } from './model';

const results = ['allowed', 'denied', 'failed'] as const;

/** Who did what, and what was refused: the audit log, newest first. */
export function ActivityPage() {
  const search = useSearch({ from: '/shell/activity' });
  const navigate = useNavigate({ from: '/activity' });
  const set = (
    change: Partial<Record<'q' | 'result' | 'actor' | 'from' | 'to' | 'streams', string | undefined>> & {
      record?: number | undefined;
    },
  ) =>
    navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const wanted: Search = {
    text: search.q,
    result: results.find((r) => r === search.result),
    actor: search.actor,
    from: search.from,
    to: search.to,
    streams: search.streams === 'yes',
  };
  const denied = useDenied('audit', 'get');
  const save = useMutation(activityMutations.save());
  const found = useInfiniteQuery(activityQueries.search(wanted));
  const records = found.data?.pages.flatMap((p) => p.items) ?? [];
  const open = records.find((r) => r.seq === search.record);
  return (
    <div className="applications">
      <div className="heading">
        <Title order={2}>{t('Activity')}</Title>
        <Text c="dimmed">{t('Every write, refusal and sign-in, newest first; streams when they are asked for')}</Text>
        <ActionButton
          variant="default"
          ml="auto"
          why={denied}
          loading={save.isPending}
          onClick={() => save.mutate(wanted)}
        >
          {t('Export what is found')}
        </ActionButton>
      </div>
      <div className="query split">
        <TextInput
          aria-label={t('Search the activity')}
          placeholder={t('Actor, address, object or reason')}
          leftSection={<IconSearch size={16} aria-hidden />}
          value={search.q ?? ''}
          onChange={(e) => set({ q: e.currentTarget.value, record: undefined })}
        />
        <TextInput
          aria-label={t('Actor')}
          placeholder={t('Actor')}
          w={120}
          value={search.actor ?? ''}
          onChange={(e) => set({ actor: e.currentTarget.value, record: undefined })}
        />
        <TextInput
          aria-label={t('On the day, or from it on')}
          type="date"
          value={search.from ?? ''}
          onChange={(e) => set({ from: e.currentTarget.value, to: undefined, record: undefined })}
        />
        {search.from && (
          <TextInput
            aria-label={t('Up to the day')}
            type="date"
            value={search.to ?? search.from}
            onChange={(e) => set({ to: e.currentTarget.value, record: undefined })}
          />
        )}
        <SegmentedControl
          aria-label={t('Result')}
          size="xs"
          value={search.result ?? ''}
          data={[
            { value: '', label: t('Everything') },
            ...results.map((r) => ({ value: r, label: resultLook(r).label })),
          ]}
          onChange={(result) => set({ result, record: undefined })}
        />
        <Checkbox
          size="xs"
          label={t('Streams')}
          checked={search.streams === 'yes'}
          onChange={(e) => set({ streams: e.currentTarget.checked ? 'yes' : undefined, record: undefined })}
        />
      </div>
      <div className="body flush">
        <Screen
          query={found}
          empty={() =>
            records.length === 0 && !found.hasNextPage ? (
              <Nothing title={t('Nothing matches the search.')} />
            ) : undefined
          }
        >
          {() => (
            <>
              <Records records={records} open={(r) => set({ record: r.seq })} />
              {found.hasNextPage && (
                <Button
                  variant="default"
                  m="sm"
                  loading={found.isFetchingNextPage}
                  onClick={() => void found.fetchNextPage()}
                >
                  {t('Look further back')}
                </Button>
              )}
              {found.isFetchNextPageError && <Problem error={found.error} retry={() => void found.fetchNextPage()} />}
            </>
          )}
        </Screen>
      </div>
      <Drawer
        opened={open !== undefined}
        onClose={() => set({ record: undefined })}
        position="right"
        size={480}
        title={open && t('{{action}} of {{object}}', { action: open.action, object: open.object || open.resource })}
      >
        {open && <Details record={open} />}
      </Drawer>
    </div>
  );
}

function Records({ records, open }: { records: AuditRecord[]; open: (record: AuditRecord) => void }) {
  return (
    <Table stickyHeader highlightOnHover aria-label={t('Activity')}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Time')}</Table.Th>
          <Table.Th>{t('What')}</Table.Th>
          <Table.Th>{t('Object')}</Table.Th>
          <Table.Th>{t('Result')}</Table.Th>
          <Table.Th>{t('By')}</Table.Th>
          <Table.Th className="second">{t('From')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {byDay(records).map((d) => (
          <Fragment key={d.day}>
            <Table.Tr className="group-row">
              <Table.Td colSpan={6}>{d.day}</Table.Td>
            </Table.Tr>
            {d.records.map((r) => (
              <Table.Tr key={r.seq}>
                <Table.Td title={exact(r.at)}>
                  <code>{timeOfDay(r.at)}</code>
                </Table.Td>
                <Table.Td>
                  <button type="button" className="name plain" onClick={() => open(r)}>
                    {r.action} {r.resource}
                  </button>
                </Table.Td>
                <Table.Td className="breakable">{r.object}</Table.Td>
                <Table.Td>
                  <StateMark look={resultLook(r.result)} weight="quiet" hint={r.reason} />
                </Table.Td>
                <Table.Td>{r.actor || '–'}</Table.Td>
                <Table.Td className="second">{r.address}</Table.Td>
              </Table.Tr>
            ))}
          </Fragment>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Details({ record }: { record: AuditRecord }) {
  const facts: [string, string | undefined][] = [
    [t('Result'), resultLook(record.result).label],
    [t('Reason'), record.reason],
    [t('Time'), exact(record.at)],
    [t('Actor'), record.actor],
    [t('By means of'), record.via],
    [t('Address'), record.address],
    [t('Resource'), record.resource],
    [t('Object'), record.object],
    [t('Request'), record.request],
    [t('Number'), String(record.seq)],
  ];
  return (
    <Stack gap="md">
      <dl className="facts-list">
        {facts
          .filter(([, value]) => value)
          .map(([label, value]) => (
            <Fragment key={label}>
              <dt>{label}</dt>
              <dd className="breakable">{value}</dd>
            </Fragment>
          ))}
      </dl>
      {record.detail && Object.keys(record.detail).length > 0 && (
        <Stack gap={4}>
          <Title order={3}>{t('Details')}</Title>
          <Code block tabIndex={0} aria-label={t('Details of the record')}>
            {JSON.stringify(record.detail, null, 2)}
          </Code>
        </Stack>
      )}
    </Stack>
  );
}
