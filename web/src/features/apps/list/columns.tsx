import { Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { sentence } from '../../../api/errors';
import { ago, exact, shortRevision } from '../../../format/format';
import { t } from '../../../texts';
import { automationLooks, DriftBadge, HealthBadge, StateBadge } from '../../../ui/badges';
import { repositoryName } from '../source';
import type { Row } from './api';

export interface Column {
  key: string;
  title: string;
  /** What the hub sorts by for it. */
  sort?: string;
  /** The width in the table. */
  width: string;
  /** It is shown on a phone as well. */
  first?: boolean;
  cell: (row: Row) => ReactNode;
  hint?: (row: Row) => string;
}

export const keyOf = (row: Row) => `${row.namespace}/${row.name}`;

/** Headlines beside which the health of an application must not look well. */
const outweighing: Row['state'][] = ['Deleting', 'Stale', 'SyncFailed', 'SourceError', 'NotDeployed', 'Missing'];

/** States that the columns of health and drift say already. */
const said: Row['state'][] = ['Healthy', 'OutOfSync', 'Degraded', 'Missing', 'Progressing', 'Suspended', 'Unknown'];

export function HealthCell({ row }: { row: Row }) {
  return (
    <HealthBadge
      status={row.health}
      cause={row.cause}
      stale={row.stale === true || (row.health !== 'Missing' && outweighing.includes(row.state))}
      weight="quiet"
    />
  );
}

export function DriftCell({ row }: { row: Row }) {
  return <DriftBadge status={row.sync} stale={row.stale === true} weight="quiet" />;
}

/** What there is to know of an application beyond its health and drift, in one line. */
export function WhyCell({ row }: { row: Row }) {
  const message = sentence(row.cause ?? '');
  if (row.state === 'Stale') {
    return (
      <span title={exact(row.asOf)}>
        <StateBadge state="Stale" message={message} weight="quiet" />{' '}
        {t('as of {{time}}', { time: ago(row.asOf, Date.now()) })}
      </span>
    );
  }
  if (row.state === 'Healthy') return null;
  return (
    <>
      {!said.includes(row.state) && <StateBadge state={row.state} message={message} weight="quiet" />}{' '}
      {row.state !== 'NotDeployed' && <span title={message}>{message}</span>}
    </>
  );
}

/** The commit of the target, as people speak of it. */
export function SourceCell({ row }: { row: Row }) {
  const version = row.chart ? (row.targetRevision ?? '') : shortRevision(row.revision);
  return (
    <>
      <code>{version}</code> {row.chart ?? row.subject}
    </>
  );
}

const automations = {
  auto: automationLooks.Auto.label,
  waiting: automationLooks.Waiting.label,
  manual: automationLooks.Manual.label,
  paused: automationLooks.Paused.label,
} satisfies Record<Row['automation'], string>;

export const automationWord = (row: Row) => automations[row.automation];

/** Phases of operations that have a word of their own. */
const phases = new Map<string, string>([
  ['Succeeded', t('Succeeded')],
  ['Failed', t('Failed')],
  ['Error', t('Error')],
  ['Running', t('Running')],
  ['Terminating', t('Terminating')],
]);

const operationWord = ({ operation }: Row) => (operation ? (phases.get(operation) ?? operation) : '');

const labelsOf = (row: Row) => Object.entries(row.labels ?? {}).map(([k, v]) => `${k}=${v}`);

/** The columns that there are besides the name, in their order. */
export const columns: readonly Column[] = [
  {
    key: 'health',
    title: t('Health'),
    sort: 'health',
    width: 'w-state',
    first: true,
    cell: (row) => <HealthCell row={row} />,
  },
  { key: 'why', title: t('Why'), sort: 'state', width: 'w-why', cell: (row) => <WhyCell row={row} /> },
  {
    key: 'drift',
    title: t('Drift'),
    sort: 'sync',
    width: 'w-state',
    first: true,
    cell: (row) => <DriftCell row={row} />,
  },
  {
    key: 'source',
    title: t('Source'),
    width: 'w-source',
    cell: (row) => <SourceCell row={row} />,
    hint: (row) => [row.subject, row.author, row.repoURL, row.path ?? row.chart].filter(Boolean).join('\n'),
  },
  { key: 'project', title: t('Project'), sort: 'project', width: 'w-project', cell: (row) => row.project },
  {
    key: 'destination',
    title: t('Destination'),
    width: 'w-destination',
    cell: (row) => (
      <>
        {row.cluster}
        {row.destinationNamespace && <Text span c="dimmed">{` / ${row.destinationNamespace}`}</Text>}
      </>
    ),
    hint: (row) => [row.cluster, row.destinationNamespace].filter(Boolean).join(' / '),
  },
  {
    key: 'repository',
    title: t('Repository'),
    width: 'w-source',
    cell: (row) => (row.repoURL ? repositoryName(row.repoURL) : ''),
    hint: (row) => row.repoURL ?? '',
  },
  { key: 'target', title: t('Target'), width: 'w-project', cell: (row) => row.targetRevision ?? '' },
  { key: 'operation', title: t('Operation'), width: 'w-state', cell: operationWord },
  { key: 'automation', title: t('Automation'), width: 'w-state', cell: automationWord },
  { key: 'owner', title: t('Owner'), width: 'w-project', cell: (row) => row.owner ?? '' },
  {
    key: 'labels',
    title: t('Labels'),
    width: 'w-source',
    cell: (row) => labelsOf(row).join(' '),
    hint: (row) => labelsOf(row).join('\n'),
  },
  {
    key: 'created',
    title: t('Created'),
    sort: 'created',
    width: 'w-changed',
    cell: (row) => (row.createdAt ? ago(row.createdAt, Date.now()) : ''),
    hint: (row) => exact(row.createdAt),
  },
  {
    key: 'changed',
    title: t('Changed'),
    sort: 'changed',
    width: 'w-changed',
    cell: (row) => ago(row.changedAt, Date.now()),
    hint: (row) =>
      [row.operation && t('Last operation: {{operation}}', { operation: operationWord(row) }), exact(row.changedAt)]
        .filter(Boolean)
        .join('\n'),
  },
];
