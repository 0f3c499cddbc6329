import { Anchor, Group, Select, Stack, Table, Text, TextInput, Title } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useRef } from 'react';
import type { Application } from '../../api/client';
import { sentence } from '../../api/errors';
import { ago, exact, shortRevision } from '../../format/format';
import { DriftBadge, HealthBadge, StateBadge, stateLabel } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import { appQueries } from './api';
import {
  type Filter,
  filtered,
  headlineOf,
  isStale,
  keyOf,
  operationWord,
  outweighed,
  projectOf,
  tally,
} from './model';
import { ErrorIcon, NoticeIcon } from './notice';

const rowHeight = 44;

/** All applications, live. The filter is part of the address. */
export function AppList() {
  const apps = useQuery(appQueries.list());
  const filter = useSearch({ from: '/shell/applications' });
  const navigate = useNavigate({ from: '/applications' });
  const set = (change: Filter) =>
    navigate({
      search: Object.fromEntries(Object.entries({ ...filter, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  return (
    <Stack>
      <Title order={2}>Applications</Title>
      <Group>
        <TextInput
          aria-label="Search applications"
          placeholder="Search"
          leftSection={<IconSearch size={16} aria-hidden />}
          value={filter.q ?? ''}
          onChange={(e) => set({ q: e.currentTarget.value })}
        />
        <Select
          aria-label="Drift"
          placeholder="Drift"
          clearable
          value={filter.sync ?? null}
          data={[
            { value: 'Synced', label: 'In sync' },
            { value: 'OutOfSync', label: 'Drifted' },
            { value: 'Unknown', label: 'Unknown' },
          ]}
          onChange={(v) => set({ sync: v ?? undefined })}
        />
        <Select
          aria-label="Health"
          placeholder="Health"
          clearable
          value={filter.health ?? null}
          data={['Healthy', 'Progressing', 'Degraded', 'Suspended', 'Missing', 'Unknown']}
          onChange={(v) => set({ health: v ?? undefined })}
        />
      </Group>
      <Screen query={apps} empty={(d) => (d.items.length === 0 ? <NoApps /> : undefined)}>
        {(d) => <AppTable apps={filtered(d.items, filter)} total={d.items} />}
      </Screen>
    </Stack>
  );
}

const count = (n: number) => `${n} ${n === 1 ? 'application' : 'applications'}`;

function NoApps() {
  return (
    <Nothing title="There are no applications yet.">
      Create one with <code>capstan apply -f application.yaml</code>. Manifests written for Argo CD work as they are.
    </Nothing>
  );
}

function AppTable({ apps, total }: { apps: Application[]; total: Application[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: apps.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const states = tally(total, (a) => stateLabel(headlineOf(a).state));
  const items = rows.getVirtualItems();
  if (apps.length === 0) return <Nothing title="No application matches the filter." />;
  const before = items[0]?.start ?? 0;
  const after = rows.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <>
      <Text size="sm" c="dimmed" aria-live="polite">
        {apps.length === total.length ? count(total.length) : `${apps.length} of ${count(total.length)}`}
        {[...states].map(([word, n]) => ` · ${n} ${word}`).join('')}
      </Text>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section ref={scroller} className="list" tabIndex={0} aria-label="Applications">
        <Table stickyHeader highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Name</Table.Th>
              <Table.Th>Project</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th>Drift</Table.Th>
              <Table.Th>Health</Table.Th>
              <Table.Th>Last operation</Table.Th>
              <Table.Th>Revision</Table.Th>
              <Table.Th>Destination</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {before > 0 && <tr aria-hidden style={{ height: before }} />}
            {items.map((item) => {
              const app = apps[item.index];
              return app ? <AppRow key={keyOf(app)} app={app} /> : null;
            })}
            {after > 0 && <tr aria-hidden style={{ height: after }} />}
          </Table.Tbody>
        </Table>
      </section>
    </>
  );
}

function AppRow({ app }: { app: Application }) {
  const stale = isStale(app);
  const headline = headlineOf(app);
  const op = operationWord(app);
  const at = app.status?.operationState?.finishedAt ?? app.status?.operationState?.startedAt;
  return (
    <Table.Tr h={rowHeight}>
      <Table.Td>
        <Anchor
          renderRoot={(props) => (
            <Link
              to="/applications/$namespace/$name"
              params={{ namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name }}
              {...props}
            />
          )}
        >
          {app.metadata.name}
        </Anchor>{' '}
        <NoticeIcon app={app} />
      </Table.Td>
      <Table.Td>{projectOf(app)}</Table.Td>
      <Table.Td>
        <StateBadge state={headline.state} message={sentence(headline.message)} />
        {stale && (
          <Text size="xs" c="dimmed" title={exact(app.status?.capstan?.asOf)}>
            as of {ago(app.status?.capstan?.asOf, Date.now())}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <DriftBadge status={app.status?.sync?.status} stale={stale} why={app.status?.capstan?.paused?.message} />{' '}
        <ErrorIcon app={app} />
      </Table.Td>
      <Table.Td>
        <HealthBadge
          status={app.status?.health?.status}
          cause={app.status?.health?.message}
          stale={stale || outweighed(app)}
        />
      </Table.Td>
      <Table.Td title={`${op.detail}\n${exact(at)}`}>
        <Text
          span
          size="sm"
          fw={op.tone === 'red' ? 600 : 400}
          c={op.tone === 'red' ? 'var(--mantine-color-error)' : ''}
        >
          {op.word}
        </Text>{' '}
        <Text span size="xs" c="dimmed">
          {at ? ago(at, Date.now()) : ''}
        </Text>
      </Table.Td>
      <Table.Td>
        <code>{shortRevision(app.status?.sync?.revision)}</code>
      </Table.Td>
      <Table.Td>
        {app.status?.capstan?.cluster ?? app.spec.destination?.name ?? app.spec.destination?.server}
        {app.spec.destination?.namespace ? ` / ${app.spec.destination.namespace}` : ''}
      </Table.Td>
    </Table.Tr>
  );
}
