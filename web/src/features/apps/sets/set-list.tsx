import { Button, SegmentedControl, Select, Table, Text, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconSearch } from '@tabler/icons-react';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { sentence } from '../../../api/errors';
import { useDenied } from '../../../api/session';
import { ago, exact } from '../../../format/format';
import { count, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { HealthBadge, healthOrder } from '../../../ui/badges';
import { Labels, Page } from '../../../ui/page';
import { Nothing, Screen } from '../../../ui/states';
import { editQueries } from '../edit/api';
import { type ApplicationSet, setQueries } from './api';
import { generatorsOf, keyOfSet, problemsOf, projectOfSet } from './model';
import type { ListSearch } from './search';
import './sets.css';

/** The ApplicationSets: how each is, and how many applications it has made. */
export function SetList() {
  const search = useSearch({ from: '/shell/applicationsets' });
  const navigate = useNavigate({ from: '/applicationsets' });
  const set = (change: ListSearch) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const [q] = useDebouncedValue(search.q ?? '', 200);
  const health = healthOrder.find(([h]) => h === search.health)?.[0] ?? '';
  const sets = useInfiniteQuery(setQueries.list({ q, project: search.project ?? '', health }));
  const denied = useDenied('applicationsets', 'create');
  const total = sets.data?.pages[0]?.total;
  const filtered = Boolean(q || search.project || health);
  return (
    <Page
      title={t('ApplicationSets')}
      about={total === undefined ? '' : count(total, '{{n}} ApplicationSet', '{{n}} ApplicationSets')}
      actions={
        <ActionButton why={denied} onClick={() => void navigate({ to: '/applicationsets/new' })}>
          {t('New ApplicationSet')}
        </ActionButton>
      }
    >
      {(filtered || total !== 0) && <Filters search={search} set={set} />}
      <Screen
        query={sets}
        empty={(d) =>
          d.pages[0]?.total === 0 ? (
            filtered ? (
              <Nothing title={t('No ApplicationSet matches the search.')} />
            ) : (
              <Nothing title={t('There is no ApplicationSet yet.')}>
                {t('One makes applications from a template: for each cluster, folder, branch or pull request.')}
              </Nothing>
            )
          ) : undefined
        }
      >
        {(d) => {
          const all = d.pages.flatMap((p) => p.items);
          return (
            <>
              {search.view === 'tiles' ? <Tiles sets={all} /> : <Rows sets={all} />}
              {sets.hasNextPage && (
                <Button
                  variant="default"
                  mt="sm"
                  loading={sets.isFetchingNextPage}
                  onClick={() => void sets.fetchNextPage()}
                >
                  {t('Show more')}
                </Button>
              )}
            </>
          );
        }}
      </Screen>
    </Page>
  );
}

function Filters({ search, set }: { search: ListSearch; set: (change: ListSearch) => void }) {
  const projects = useQuery(editQueries.projects());
  return (
    <div className="filters">
      <TextInput
        className="grow"
        aria-label={t('Search ApplicationSets')}
        placeholder={t('Name')}
        leftSection={<IconSearch size={16} aria-hidden />}
        value={search.q ?? ''}
        onChange={(e) => set({ q: e.currentTarget.value })}
      />
      <Select
        aria-label={t('Project')}
        placeholder={t('Any project')}
        searchable
        clearable
        data={['*', ...(projects.data ?? []).map((p) => p.metadata.name)]}
        value={search.project ?? null}
        onChange={(project) => set({ project: project ?? undefined })}
      />
      <Select
        aria-label={t('Health')}
        placeholder={t('Any health')}
        clearable
        data={healthOrder
          .filter(([h]) => h !== 'Missing' && h !== 'Suspended')
          .map(([value, look]) => ({ value, label: look.label }))}
        value={search.health ?? null}
        onChange={(health) => set({ health: health ?? undefined })}
      />
      <SegmentedControl
        aria-label={t('View')}
        size="xs"
        value={search.view === 'tiles' ? 'tiles' : 'table'}
        data={[
          { value: 'table', label: t('Table') },
          { value: 'tiles', label: t('Tiles') },
        ]}
        onChange={(view) => set({ view: view === 'tiles' ? 'tiles' : undefined })}
      />
    </div>
  );
}

function NameOf({ set }: { set: ApplicationSet }) {
  const key = keyOfSet(set);
  return (
    <>
      <Link to="/applicationsets/$namespace/$name" params={key} className="breakable">
        {key.name}
      </Link>
      {key.namespace !== 'argocd' && <span className="quiet"> {key.namespace}</span>}
    </>
  );
}

function HealthOf({ set }: { set: ApplicationSet }) {
  const health = set.status?.health;
  return <HealthBadge status={health?.status} cause={health?.message} weight="quiet" />;
}

/** What somebody has to do something about. */
function Problems({ set }: { set: ApplicationSet }) {
  return problemsOf(set).map((c) => (
    <Text key={c.type} size="xs" c="dimmed" className="breakable" title={c.message}>
      {sentence(c.message)}
    </Text>
  ));
}

const madeCount = (set: ApplicationSet) => set.status?.resourcesCount ?? 0;

function Rows({ sets }: { sets: ApplicationSet[] }) {
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('ApplicationSets')} mt="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Name')}</Table.Th>
            <Table.Th>{t('Health')}</Table.Th>
            <Table.Th>{t('Applications')}</Table.Th>
            <Table.Th className="second">{t('Project')}</Table.Th>
            <Table.Th className="second">{t('Generators')}</Table.Th>
            <Table.Th className="second">{t('Generated')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {sets.map((s) => (
            <Table.Tr key={`${s.metadata.namespace}/${s.metadata.name}`}>
              <Table.Td>
                <NameOf set={s} /> <Labels labels={s.metadata.labels} />
              </Table.Td>
              <Table.Td>
                <HealthOf set={s} />
                <Problems set={s} />
              </Table.Td>
              <Table.Td>{madeCount(s)}</Table.Td>
              <Table.Td className="second">{projectOfSet(s)}</Table.Td>
              <Table.Td className="second">{generatorsOf(s.spec).join(', ')}</Table.Td>
              <Table.Td className="second" title={exact(s.status?.capstan?.generatedAt)}>
                {ago(s.status?.capstan?.generatedAt, Date.now())}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Tiles({ sets }: { sets: ApplicationSet[] }) {
  return (
    <ul className="set-tiles" aria-label={t('ApplicationSets')}>
      {sets.map((s) => (
        <li key={`${s.metadata.namespace}/${s.metadata.name}`}>
          <div className="set-line">
            <NameOf set={s} />
            <span className="quiet" title={exact(s.status?.capstan?.generatedAt)}>
              {ago(s.status?.capstan?.generatedAt, Date.now())}
            </span>
          </div>
          <div className="set-line">
            <HealthOf set={s} />
            <span>{count(madeCount(s), '{{n}} application', '{{n}} applications')}</span>
          </div>
          <Problems set={s} />
          <div className="quiet breakable">{[projectOfSet(s), ...generatorsOf(s.spec)].join(' / ')}</div>
        </li>
      ))}
    </ul>
  );
}
