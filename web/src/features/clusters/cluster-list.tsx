import { SegmentedControl, Table, Text, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import type { Cluster } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { count, number, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Labels, Page } from '../../ui/page';
import { PauseDialog } from '../../ui/pause';
import { Nothing, Screen } from '../../ui/states';
import { clusterQueries } from './api';
import { EnrollDialog } from './enroll';
import { connectionLook, matches, problemOf } from './model';
import { UpgradeLine } from './upgrade-line';

const filters = [
  { value: '', label: t('All') },
  { value: 'connected', label: t('Connected') },
  { value: 'disconnected', label: t('Disconnected') },
  { value: 'never', label: t('Never connected') },
  { value: 'problems', label: t('With a problem') },
];

/** The clusters, the state of their agents, and the way to add one. */
export function ClusterList() {
  const search = useSearch({ from: '/shell/clusters' });
  const navigate = useNavigate({ from: '/clusters' });
  const set = (change: {
    q?: string | undefined;
    state?: string | undefined;
    enroll?: string | undefined;
    pause?: string | undefined;
  }) =>
    navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const clusters = useQuery(clusterQueries.list());
  const denied = useDenied('clusters', 'create');
  const override = useDenied('clusters', 'override');
  const all = clusters.data?.items ?? [];
  const shown = all.filter((c) => matches(c, search.q ?? '', search.state));
  const away = all.filter((c) => c.connection === 'Disconnected').length;
  const total = count(all.length, '{{n}} cluster', '{{n}} clusters');
  return (
    <Page
      title={t('Clusters')}
      about={clusters.data && (away > 0 ? t('{{total}}, {{away}} away', { total, away: number(away) }) : total)}
      actions={
        <>
          <ActionButton variant="default" why={override} onClick={() => set({ pause: 'all' })}>
            {t('Pause all automation')}
          </ActionButton>
          <ActionButton why={denied} onClick={() => set({ enroll: 'new' })}>
            {t('Enrol a cluster')}
          </ActionButton>
        </>
      }
    >
      {all.length > 0 && (
        <div className="filters">
          <TextInput
            className="grow"
            aria-label={t('Search clusters')}
            placeholder={t('Name, label, address or version')}
            leftSection={<IconSearch size={16} aria-hidden />}
            value={search.q ?? ''}
            onChange={(e) => set({ q: e.currentTarget.value })}
          />
          <SegmentedControl
            aria-label={t('State')}
            size="xs"
            value={search.state ?? ''}
            data={filters}
            onChange={(state) => set({ state })}
          />
        </div>
      )}
      <Screen
        query={clusters}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title={t('No cluster is enrolled yet.')}>
              {t('Its agent dials out to the hub; the hub needs no credential for it.')}
            </Nothing>
          ) : undefined
        }
      >
        {() =>
          shown.length === 0 ? <Nothing title={t('No cluster matches the search.')} /> : <Rows clusters={shown} />
        }
      </Screen>
      {search.pause && <PauseDialog close={() => set({ pause: undefined })} />}
      {search.enroll && (
        <EnrollDialog
          denied={denied}
          {...(search.enroll === 'new' ? {} : { again: search.enroll })}
          close={() => set({ enroll: undefined })}
        />
      )}
    </Page>
  );
}

function Rows({ clusters }: { clusters: Cluster[] }) {
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('Clusters')} mt="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Name')}</Table.Th>
            <Table.Th>{t('Agent')}</Table.Th>
            <Table.Th>{t('Last seen')}</Table.Th>
            <Table.Th className="second">{t('Kubernetes')}</Table.Th>
            <Table.Th className="second">{t('Agent version')}</Table.Th>
            <Table.Th className="second">{t('Applications')}</Table.Th>
            <Table.Th className="second">{t('Objects')}</Table.Th>
            <Table.Th className="second">{t('Behind by')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {clusters.map((c) => (
            <Row key={c.id} cluster={c} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Row({ cluster }: { cluster: Cluster }) {
  const problem = problemOf(cluster);
  return (
    <Table.Tr>
      <Table.Td>
        <Link to="/clusters/$name" params={{ name: cluster.name }}>
          {cluster.name}
        </Link>{' '}
        <Labels labels={cluster.labels} />
      </Table.Td>
      <Table.Td>
        <StateMark look={connectionLook(cluster)} weight="quiet" />
        {problem && (
          <Text size="xs" c="dimmed" title={cluster.refusal ? exact(cluster.refusal.at) : ''}>
            {sentence(problem)}
          </Text>
        )}
      </Table.Td>
      <Table.Td title={exact(cluster.lastSeen)}>{ago(cluster.lastSeen, Date.now())}</Table.Td>
      <Table.Td className="second">{cluster.kubeVersion ?? '–'}</Table.Td>
      <Table.Td className="second">
        {cluster.agentVersion ?? '–'}
        <UpgradeLine upgrade={cluster.upgrade} />
      </Table.Td>
      <Table.Td className="second">{cluster.counts?.applications ?? '–'}</Table.Td>
      <Table.Td className="second">{cluster.counts?.objects ?? '–'}</Table.Td>
      <Table.Td className="second">{behind(cluster)}</Table.Td>
    </Table.Tr>
  );
}

/** What hub and agent still have to tell each other, in words. */
export function behind(cluster: Cluster): string {
  if (cluster.connection === 'NeverConnected') return '–';
  const rows = (cluster.seq ?? 0) - (cluster.ackedSeq ?? 0);
  if (rows > 0) return count(rows, '{{n}} change', '{{n}} changes');
  const lag = Math.round(cluster.lagSeconds ?? 0);
  return lag > 0 ? `${lag} s` : t('nothing');
}
