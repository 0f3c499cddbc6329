import { Button, MultiSelect, Table, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef, useState } from 'react';
import { noticeQueries } from '../../api/notices';
import { ago, exact } from '../../format/format';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { Page } from '../../ui/page';
import { Nothing, Screen } from '../../ui/states';
import { type Facet, type ListedResource, objectQueries } from './api';
import './objects.css';
import { count, t } from '../../texts';
import { type Filter, filters, filtersSet, type ObjectSearch, objectSearch, valuesOf } from './search';

const titles: Record<Filter, string> = {
  kind: t('Kind'),
  namespace: t('Namespace'),
  cluster: t('Cluster'),
  project: t('Project'),
  sync: t('Drift'),
  health: t('Health'),
};

const words: Readonly<Record<string, string>> = {
  Synced: t('In sync'),
  OutOfSync: t('Drifted'),
  Healthy: t('Healthy'),
  Progressing: t('Progressing'),
  Degraded: t('Degraded'),
  Suspended: t('Suspended'),
  Missing: t('Missing'),
  Unknown: t('Unknown'),
};

/** The managed objects of all applications that one may see. */
export function ObjectList() {
  const client = useQuery(noticeQueries.client());
  const off = client.data?.features.resources === false;
  return off ? (
    <Page title={t('Resources')}>
      <Nothing title={t('The list of all objects is switched off.')}>
        {t(
          'An admin can remove the setting ui.view.resources.disabled of argocd-cm. Each application shows its own objects.',
        )}
      </Nothing>
    </Page>
  ) : (
    <Objects />
  );
}

function Objects() {
  const search = useSearch({ from: '/shell/resources' });
  const navigate = useNavigate({ from: '/resources' });
  const set = (change: { [name in keyof ObjectSearch]: string | undefined }) =>
    void navigate({ search: objectSearch({ ...search, ...change }), replace: true });
  const pages = useInfiniteQuery(objectQueries.pages(search));
  const counts = useQuery(objectQueries.counts(search));
  const total = counts.data?.total ?? 0;
  return (
    <Page title={t('Resources')} about={counts.data && count(total, '{{n}} object', '{{n}} objects')}>
      <div className="filters">
        <Name value={search.q ?? ''} set={(q) => set({ q })} />
        {filters.map((f) => (
          <Choice
            key={f}
            filter={f}
            facet={counts.data?.facets?.find((x) => x.field === f)}
            value={valuesOf(search, f)}
            set={(values) => set({ [f]: values.join(',') })}
          />
        ))}
        {filtersSet(search) > 0 && (
          <Button variant="subtle" onClick={() => void navigate({ search: {}, replace: true })}>
            {t('Clear filters')}
          </Button>
        )}
      </div>
      <Screen
        query={pages}
        empty={(d) =>
          d.pages[0]?.items.length === 0 ? (
            filtersSet(search) > 0 ? (
              <Nothing title={t('No object matches the filters.')} />
            ) : (
              <Nothing title={t('There are no managed objects yet.')}>
                {t('What applications deploy is listed here, of all clusters.')}
              </Nothing>
            )
          ) : undefined
        }
      >
        {(d) => (
          <Rows
            objects={d.pages.flatMap((p) => p.items)}
            total={total}
            more={() => {
              if (pages.hasNextPage && !pages.isFetchingNextPage) void pages.fetchNextPage();
            }}
          />
        )}
      </Screen>
    </Page>
  );
}

/** Part of the name, which is searched for when somebody stops typing. */
function Name({ value, set }: { value: string; set: (value: string) => void }) {
  const [text, setText] = useState(value);
  const asked = useRef(value);
  useEffect(() => {
    // What is typed meanwhile stays; another address has another text.
    if (value === asked.current) return;
    asked.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === asked.current) return;
    const timer = setTimeout(() => {
      asked.current = text;
      set(text);
    }, 150);
    return () => clearTimeout(timer);
  }, [text, set]);
  return (
    <TextInput
      className="grow"
      aria-label={t('Search objects')}
      placeholder={t('Part of the name')}
      leftSection={<IconSearch size={16} aria-hidden />}
      value={text}
      onChange={(e) => setText(e.currentTarget.value)}
    />
  );
}

function Choice(props: { filter: Filter; facet: Facet | undefined; value: string[]; set: (values: string[]) => void }) {
  const { filter, facet, value, set } = props;
  const found = (facet?.values ?? []).filter((v) => v.value);
  const gone = value.filter((v) => !found.some((f) => f.value === v));
  return (
    <MultiSelect
      className="object-filter"
      aria-label={titles[filter]}
      placeholder={value.length === 0 ? titles[filter] : ''}
      searchable
      clearable
      clearButtonProps={{ 'aria-label': t('Clear {{name}}', { name: titles[filter] }) }}
      value={value}
      data={[
        ...found.map((v) => ({ value: v.value, label: `${words[v.value] ?? v.value} (${v.count})` })),
        ...gone.map((v) => ({ value: v, label: words[v] ?? v })),
      ]}
      onChange={set}
    />
  );
}

const rowHeight = 36;
/** So many rows before the end of what is there, the next page is read. */
const ahead = 40;

function Rows({ objects, total, more }: { objects: ListedResource[]; total: number; more: () => void }) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: objects.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const drawn = rows.getVirtualItems();
  const last = drawn.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= objects.length - ahead) more();
  }, [last, objects.length, more]);
  const before = drawn[0]?.start ?? 0;
  const after = rows.getTotalSize() - (drawn.at(-1)?.end ?? 0);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section ref={scroller} className="object-rows" tabIndex={0} aria-label={t('Objects, {{total}}', { total })}>
      <Table aria-label={t('Resources')} aria-rowcount={total + 1} stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Object')}</Table.Th>
            <Table.Th>{t('Drift')}</Table.Th>
            <Table.Th>{t('Health')}</Table.Th>
            <Table.Th>{t('Application')}</Table.Th>
            <Table.Th className="second">{t('Namespace')}</Table.Th>
            <Table.Th className="second">{t('Cluster')}</Table.Th>
            <Table.Th className="second">{t('Created')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {before > 0 && <tr aria-hidden style={{ height: before }} />}
          {drawn.map((d) => {
            const o = objects[d.index];
            return o && <Row key={keyOf(o)} object={o} index={d.index} />;
          })}
          {after > 0 && <tr aria-hidden style={{ height: after }} />}
        </Table.Tbody>
      </Table>
    </section>
  );
}

const keyOf = (o: ListedResource) =>
  [o.cluster, o.application.namespace, o.application.name, o.group, o.kind, o.namespace, o.name].join('/');

function Row({ object: o, index }: { object: ListedResource; index: number }) {
  const stale = o.stale ?? false;
  return (
    <Table.Tr h={rowHeight} aria-rowindex={index + 2}>
      <Table.Td className="object-name">
        <Link
          to="/applications/$namespace/$name"
          params={o.application}
          search={{ object: [o.group, o.kind, o.namespace ?? '', o.name].join('/') }}
          aria-label={`${o.kind} ${o.name}`}
        >
          <span className="kind">{o.kind}</span> {o.name}
        </Link>
        {o.requiresPruning ? ` · ${t('to be pruned')}` : ''}
      </Table.Td>
      <Table.Td>
        <DriftBadge status={o.status} stale={stale} weight="quiet" />
      </Table.Td>
      <Table.Td>
        {o.health && <HealthBadge status={o.health} cause={o.message} stale={stale} weight="quiet" />}
      </Table.Td>
      <Table.Td>
        <Link to="/applications/$namespace/$name" params={o.application}>
          {o.application.name}
        </Link>
      </Table.Td>
      <Table.Td className="second">{o.namespace || '–'}</Table.Td>
      <Table.Td className="second">{o.cluster}</Table.Td>
      <Table.Td className="second" title={exact(o.createdAt)}>
        {o.createdAt ? ago(o.createdAt, Date.now()) : '–'}
      </Table.Td>
    </Table.Tr>
  );
}
