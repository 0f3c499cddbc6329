import { Button, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { HubError, sentence } from '../../api/errors';
import { Nothing, Screen } from '../../ui/states';
import { type Facet, listQueries, type Row, type RowPage, type Spec } from './list/api';
import { BulkBar, nonePicked, type Picked, Progress } from './list/bulk';
import { keyOf } from './list/columns';
import { Facets, facetNames } from './list/facets';
import './list/list.css';
import { count, Rich, t } from '../../texts';
import { QueryBar } from './list/query-bar';
import type { ListSearch } from './list/search';
import { mostFavourites, looks as readLooks, texts, useStored } from './list/stored';
import { Summary } from './list/summary';
import { RowTable } from './list/table';
import { only, terms } from './list/terms';
import { Tiles } from './list/tiles';
import { Shapes, Views } from './list/views';
import { NewApplication } from './new-application';

/** The applications that match a query, live. What is shown is part of the address; only a window of it is read. */
export function AppList() {
  const search = useSearch({ from: '/shell/applications' });
  const navigate = useNavigate({ from: '/applications' });
  const [looks, setLooks] = useStored('list', readLooks);
  const [favourites, setFavourites] = useStored('favourites', texts);
  const [filtering, setFiltering] = useState(false);
  const open = (next: ListSearch) => void navigate({ search: next });
  const set = useCallback(
    (change: { [name in keyof ListSearch]: ListSearch[name] | undefined }, replace = true) =>
      void navigate({ search: (was) => changed(was, change), replace }),
    [navigate],
  );
  const query = search.q ?? '';
  const fav = search.fav;
  const order = search.sort ?? 'name';
  const of = useCallback(
    (q: string): Spec => ({ query: asked(q, fav, favourites), sort: order, size: looks.size }),
    [fav, favourites, order, looks.size],
  );
  const spec = useMemo(() => of(query), [of, query]);
  // The hub is asked while the address changes, not after that.
  const client = useQueryClient();
  const ask = useCallback(
    (q: string, replace: boolean) => {
      const next = of(q);
      void client.prefetchQuery(listQueries.page(next, 0));
      void client.prefetchQuery(numbersOf(next.query));
      set({ q }, replace);
    },
    [client, of, set],
  );
  const type = useCallback((q: string) => ask(q, true), [ask]);
  const choose = useCallback((q: string) => ask(q, false), [ask]);
  const show = useCallback((view: ListSearch['view']) => set({ view }), [set]);
  const { first, shown, wrong, busy, numbers } = useList(spec);
  const star = useCallback(
    (row: Row) => {
      const key = keyOf(row);
      if (favourites.includes(key)) setFavourites(favourites.filter((f) => f !== key));
      else if (favourites.length < mostFavourites) setFavourites([...favourites, key]);
      else
        notifications.show({
          title: t('There are {{mostFavourites}} favourites.', { mostFavourites }),
          message: t('Give one of them up first.'),
        });
    },
    [favourites, setFavourites],
  );
  const total = first.data?.total;
  const [picked, setPicked] = useState<Picked>(nonePicked);
  useEffect(() => setPicked(nonePicked), [spec.query]);
  const list = {
    picked,
    setPicked,
    spec: shown,
    total: total ?? 0,
    looks,
    sort: order,
    setSort: (sort: string) => set({ sort: sort === 'name' ? undefined : sort }),
    favourites,
    star,
  };
  const nothing = total === 0 && !wrong;
  return (
    <div className="applications app-list" data-compact={looks.compact}>
      <div className="heading">
        <Title order={2}>{t('Applications')}</Title>
        <Text c="dimmed" aria-live="polite">
          {total !== undefined && count(total, '{{n}} application', '{{n}} applications')}
        </Text>
        <Shapes view={search.view} show={show} looks={looks} change={setLooks} />
        <NewApplication />
      </div>
      <div className="query">
        <Views search={search} open={open} favourites={favourites.length} total={total} />
        <QueryBar query={query} change={type} busy={busy} wrong={wrong} />
        <Button className="phone" variant="default" aria-expanded={filtering} onClick={() => setFiltering(!filtering)}>
          {t('Filters')}
        </Button>
      </div>
      {!(nothing && query === '') && <Facets query={query} facets={numbers} change={choose} open={filtering} />}
      <div className="body" aria-busy={first.old} data-old={first.old || wrong !== undefined}>
        {search.fav && favourites.length === 0 ? (
          <Nothing title={t('There are no favourites yet.')}>{t('The star beside a name makes one.')}</Nothing>
        ) : (
          <Screen
            query={first}
            empty={() =>
              nothing ? query === '' && !search.fav ? <NoApps /> : <None clear={() => open({})} /> : undefined
            }
          >
            {() =>
              search.view === 'summary' ? (
                <Summary query={query} facets={numbers} open={(q) => set({ q, view: undefined }, false)} />
              ) : search.view === 'tiles' ? (
                <Tiles {...list} />
              ) : (
                <RowTable {...list} />
              )
            }
          </Screen>
        )}
      </div>
      <BulkBar
        picked={picked}
        query={spec.query}
        total={total ?? 0}
        clear={() => setPicked(nonePicked)}
        begun={(bulk) => set({ bulk })}
      />
      {search.bulk && <Progress id={search.bulk} close={() => set({ bulk: undefined })} />}
    </div>
  );
}

/** The address with something of it changed. */
function changed(was: ListSearch, change: { [name in keyof ListSearch]: ListSearch[name] | undefined }): ListSearch {
  const next: ListSearch = {};
  const all = { ...was, ...change };
  if (all.q) next.q = all.q;
  if (all.sort) next.sort = all.sort;
  if (all.view) next.view = all.view;
  if (all.fav) next.fav = all.fav;
  if (all.bulk) next.bulk = all.bulk;
  return next;
}

/** The query for the hub: favourites are names that it is asked for. */
function asked(query: string, fav: ListSearch['fav'], favourites: string[]): string {
  if (!fav) return query;
  const names = favourites.map((f) => f.slice(f.indexOf('/') + 1));
  return only(query, 'name', names.length > 0 ? [...new Set(names)] : ['']);
}

/** How many applications a query has of which values, for the facets beside the list. */
function numbersOf(query: string) {
  const keys = terms(query)
    .filter((term) => term.field === 'label' && term.key !== '' && !term.not)
    .map((term) => `label:${term.key}`);
  return listQueries.numbers(query, [...facetNames, ...new Set(keys)].slice(0, 20));
}

/** What is read of a list. While another query is read, the rows of the one before stay, and so they do for a wrong one. */
function useList(spec: Spec) {
  const page = useQuery({ ...listQueries.page(spec, 0), placeholderData: (held) => held });
  const numbers = useQuery({ ...numbersOf(spec.query), placeholderData: (held) => held });
  // What was shown last. It is needed only when something else has had the list drawn again.
  const held = useRef<{ spec: Spec; page: RowPage }>(undefined);
  const counted = useRef<Facet[]>([]);
  const { data: read, error, isPending, isPlaceholderData: old, refetch } = page;
  const settled = read !== undefined && !old;
  useEffect(() => {
    if (read && settled) held.current = { spec, page: read };
  }, [settled, read, spec]);
  useEffect(() => {
    if (numbers.data) counted.current = numbers.data.facets;
  }, [numbers.data]);
  const wrong = error instanceof HubError && error.detail.status === 400 ? error : undefined;
  const data = read ?? (wrong ? held.current?.page : undefined);
  return {
    first: { data, error, old, refetch, isPending: data === undefined && isPending },
    shown: settled ? spec : (held.current?.spec ?? spec),
    wrong: wrong && [sentence(wrong.detail.cause ?? wrong.message), sentence(wrong.detail.fix ?? '')].join(' ').trim(),
    busy: old || isPending,
    numbers: numbers.data?.facets ?? counted.current,
  };
}

function NoApps() {
  return (
    <Nothing title={t('There are no applications yet.')}>
      <Rich
        text="<create>Create one</create> from a repository, or with <code>capstan apply -f application.yaml</code>. Manifests written for Argo CD work as they are."
        parts={{ create: <Link to="/applications/new" />, code: <code /> }}
      />
    </Nothing>
  );
}

function None({ clear }: { clear: () => void }) {
  return (
    <Nothing title={t('No application matches the filter.')}>
      <Button variant="default" onClick={clear}>
        {t('Show all applications')}
      </Button>
    </Nothing>
  );
}
