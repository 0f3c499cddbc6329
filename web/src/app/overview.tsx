import { Anchor, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Cluster } from '../api/client';
import { sentence } from '../api/errors';
import { may, meQuery } from '../api/session';
import { type Facet, listQueries, valuesOf } from '../features/apps/list/api';
import { quoted } from '../features/apps/list/terms';
import { clusterQueries } from '../features/clusters/api';
import { connectionLook } from '../features/clusters/model';
import { repositoryQueries } from '../features/repositories/api';
import { ago, exact } from '../format/format';
import { count, number, Rich, t } from '../texts';
import { healthOrder, StateBadge, StateMark } from '../ui/badges';
import { Nothing, Problem, Screen } from '../ui/states';
import { type Concern, concerns, urgentQuery } from './attention';

/** How many concerns are listed; the list of applications has the others. */
const most = 50;

/** What is counted of all applications. */
const counted = ['health', 'cluster'];

/** What needs somebody now, how all applications are, and the clusters. Applications are counted by the hub. */
export function Overview() {
  const me = useQuery(meQuery);
  const mayClusters = may(me.data, 'clusters', 'get');
  const clusters = useQuery({ ...clusterQueries.list(), enabled: mayClusters });
  const mayRepositories = may(me.data, 'repositories', 'get');
  const repositories = useQuery({ ...repositoryQueries.list(), enabled: mayRepositories });
  const numbers = useQuery(listQueries.numbers('', counted));
  const known = clusters.data?.items ?? [];
  const query = urgentQuery(known);
  const urgent = useQuery({
    ...listQueries.page({ query, sort: '-state', size: most }, 0),
    enabled: me.data !== undefined && (!mayClusters || !clusters.isPending),
    placeholderData: (held) => held,
  });
  const total = numbers.data?.total ?? 0;
  const onClusters = valuesOf(numbers.data?.facets, 'cluster');
  return (
    <div className="applications">
      <div className="heading">
        <Title order={2}>{t('Overview')}</Title>
        {numbers.data && (
          <Text c="dimmed">
            {count(total, '{{n}} application', '{{n}} applications')}
            {clusters.data && ` ${count(known.length, 'on {{n}} cluster', 'on {{n}} clusters')}`}
          </Text>
        )}
      </div>
      <div className="query">{numbers.data && <Healths facets={numbers.data.facets} />}</div>
      <div className="body">
        <Screen query={numbers}>
          {() => (
            <div className="columns">
              {total === 0 ? (
                <FirstSteps clusters={known.length} />
              ) : (
                <Screen query={urgent}>
                  {(d) => (
                    <Concerns
                      all={concerns(d.rows, known, repositories.data?.items ?? [], onClusters)}
                      further={Math.max(0, d.total - d.rows.length)}
                      query={query}
                      complete={(!mayClusters || !!clusters.data) && (!mayRepositories || !!repositories.data)}
                    >
                      {mayRepositories && !repositories.data && <Screen query={repositories}>{() => null}</Screen>}
                    </Concerns>
                  )}
                </Screen>
              )}
              {clusters.error && !clusters.data ? (
                <Problem error={clusters.error} retry={() => void clusters.refetch()} />
              ) : (
                <Clusters clusters={known} counts={onClusters} />
              )}
            </div>
          )}
        </Screen>
      </div>
    </div>
  );
}

/** How many applications are in each state of health; each leads to the list of them. */
function Healths({ facets }: { facets: Facet[] }) {
  const counts = valuesOf(facets, 'health');
  return (
    <ul className="healths" aria-label={t('Applications by health')}>
      {[...healthOrder]
        .reverse()
        .map(([health, look]) => ({ value: health.toLowerCase(), look }))
        .filter(({ value }) => counts.has(value))
        .map(({ value, look }) => (
          <li key={value}>
            <Link to="/applications" search={{ q: `health:${value}` }}>
              <b>{counts.get(value)}</b> <StateMark look={look} weight="quiet" />
            </Link>
          </li>
        ))}
    </ul>
  );
}

function FirstSteps({ clusters }: { clusters: number }) {
  return (
    <section aria-label={t('First steps')}>
      <Title order={3}>{t('Three steps to the first application')}</Title>
      <ol className="steps">
        <li data-done={clusters > 0}>
          <Rich
            text="<a>Enrol a cluster</a>: its agent dials out to this hub."
            parts={{ a: <Link to="/clusters" /> }}
          />
        </li>
        <li>
          <Rich text="<a>Add a repository</a>, unless it is public." parts={{ a: <Link to="/repositories" /> }} />
        </li>
        <li>
          <Rich
            text="<a>Create an application</a> by browsing the repository, or with <code/>. Manifests of Argo CD work as they are."
            parts={{ a: <Link to="/applications/new" />, code: <code>capstan apply -f application.yaml</code> }}
          />
        </li>
      </ol>
    </section>
  );
}

function Concerns({
  all,
  further,
  query,
  complete,
  children,
}: {
  all: Concern[];
  /** How many applications there are that are not read. */
  further: number;
  query: string;
  /** Everything was read that may need somebody: only then nothing does. */
  complete: boolean;
  /** About what was not read. */
  children: ReactNode;
}) {
  const more = Math.max(0, all.length - most) + further;
  return (
    <section aria-label={t('Needs you now')}>
      <Title order={3}>
        {t('Needs you now')}{' '}
        <Text span c="dimmed">
          {complete || all.length > 0 ? all.length + further : ''}
        </Text>
      </Title>
      {all.length === 0 && complete && (
        <Nothing title={t('All quiet.')}>{t('Nothing failed, drifted away or waits for you.')}</Nothing>
      )}
      {children}
      <ul className="concerns">
        {all.slice(0, most).map((c) => (
          <li key={c.key}>
            <StateBadge state={c.state} weight="quiet" />
            <div>
              <Where concern={c} />{' '}
              <Text span c="dimmed">
                {c.where}
              </Text>
              <Text lineClamp={2}>{sentence(c.cause)}</Text>
            </div>
            <Text c="dimmed" title={exact(c.since)} className="age">
              {c.since ? ago(c.since, Date.now()) : ''}
            </Text>
          </li>
        ))}
      </ul>
      {more > 0 && (
        <Text c="dimmed">
          <Rich
            text="<more/> more in the <a>list of applications</a>"
            parts={{
              more: <>{number(more)}</>,
              a: <Link to="/applications" search={{ q: query, sort: '-state' }} />,
            }}
          />
        </Text>
      )}
    </section>
  );
}

/** The name of what a concern is about, which leads there. */
function Where({ concern: { name, to } }: { concern: Concern }) {
  if (to.kind === 'application') {
    return (
      <Anchor
        fw={500}
        renderRoot={(props) => (
          <Link to="/applications/$namespace/$name" params={{ namespace: to.namespace, name: to.name }} {...props} />
        )}
      >
        {name}
      </Anchor>
    );
  }
  const place = to.kind === 'clusters' ? '/clusters' : '/repositories';
  return (
    <Anchor fw={500} renderRoot={(props) => <Link to={place} {...props} />}>
      {name}
    </Anchor>
  );
}

/** The clusters with how many applications they have, and how many of those need somebody. */
function Clusters({ clusters, counts }: { clusters: Cluster[]; counts: Map<string, number> }) {
  const urgent = useQuery({
    ...listQueries.numbers(urgentQuery(clusters), ['cluster']),
    enabled: clusters.length > 0,
    placeholderData: (held) => held,
  });
  const needing = valuesOf(urgent.data?.facets, 'cluster');
  if (clusters.length === 0) return null;
  return (
    <section aria-label={t('Clusters')}>
      <Title order={3}>
        {t('Clusters')}{' '}
        <Text span c="dimmed">
          {clusters.length}
        </Text>
      </Title>
      <ul className="tiles">
        {clusters.map((c) => {
          const n = needing.get(c.name) ?? 0;
          return (
            <li key={c.id}>
              <Link to="/applications" search={{ q: `cluster:${quoted(c.name)}` }}>
                <Stack gap={2}>
                  <b>{c.name}</b>
                  {c.connection !== 'Connected' || c.quarantine ? (
                    <StateMark look={connectionLook(c)} weight="quiet" />
                  ) : !urgent.data ? (
                    <StateBadge state="Unknown" weight="quiet" />
                  ) : n > 0 ? (
                    <StateMark
                      look={{ label: count(n, '{{n}} needs you', '{{n}} need you'), tone: 'attention', shape: 'hand' }}
                      weight="quiet"
                    />
                  ) : (
                    <StateBadge state="Healthy" weight="quiet" />
                  )}
                </Stack>
                <span className="count">{counts.get(c.name) ?? 0}</span>
              </Link>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
