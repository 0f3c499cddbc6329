import { ActionIcon, SegmentedControl, Switch, TextInput, Tooltip } from '@mantine/core';
import { useHotkeys, useIntersection } from '@mantine/hooks';
import { IconAlertTriangle, IconChevronDown, IconChevronUp, IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useState } from 'react';
import type { Application } from '../../../api/client';
import { sentence } from '../../../api/errors';
import { shortRevision } from '../../../format/format';
import { count, t } from '../../../texts';
import { Nothing, Screen } from '../../../ui/states';
import { type AppKey, appQueries } from '../api';
import { type AppSearch, changed } from '../search';
import { changesOf, found, type ObjectChange, useComparisons } from './changes';
import { type Mode, Rows } from './comparison';
import type { Comparison } from './lines';
import './tab.css';

interface Props {
  appKey: AppKey;
  app: Application;
  search: AppSearch;
  go: (search: AppSearch) => void;
}

/** Live against desired, for each object that differs. */
export default function Diff({ appKey, app, search, go }: Props) {
  const diff = useQuery(appQueries.diff(appKey));
  return (
    <Screen query={diff} empty={(d) => (d.items.length === 0 ? <Equal app={app} /> : undefined)}>
      {(d) => <Changes items={d.items} search={search} go={go} />}
    </Screen>
  );
}

/** What is said where nothing differs: of Git only if it is Git that was compared. */
function Equal({ app }: { app: Application }) {
  const paused = app.status?.capstan?.paused;
  if (paused) {
    return (
      <Nothing
        title={t('The cluster equals revision {{revision}}, at which the application is paused.', {
          revision: shortRevision(paused.revision),
        })}
      >
        {sentence(paused.message)}
        {app.status?.sync?.status === 'OutOfSync' && ` ${t('Git asks for something else.')}`}
      </Nothing>
    );
  }
  if (app.status?.sync?.status === 'Unknown') {
    return (
      <Nothing title={t('Nothing differs from what was rendered last.')}>
        {t('It cannot be compared with Git now: {{message}}.', { message: app.status.capstan?.stale?.message ?? '' })}
      </Nothing>
    );
  }
  return <Nothing title={t('No differences: live state matches Git.')} />;
}

/** Where one is among all changes: in which object, and at which of its changes. */
interface Place {
  id: string;
  change: number;
}

type List = { items: NonNullable<ReturnType<typeof changesOf>[number]['object']>[] };

function Changes({ items, search, go }: List & Pick<Props, 'search' | 'go'>) {
  const [text, setText] = useState('');
  const whole = search.whole === 'yes';
  const mode: Mode = search.mode === 'unified' ? 'unified' : 'split';
  const all = useMemo(() => changesOf(items), [items]);
  const shown = useMemo(() => found(all, text), [all, text]);
  const compared = useComparisons(all, whole);
  const [place, setPlace] = useState<Place | undefined>(search.change ? { id: search.change, change: 0 } : undefined);
  const places = useMemo(
    () =>
      shown.flatMap((c) =>
        Array.from({ length: compared.get(c.id)?.changes ?? 0 }, (_, change): Place => ({ id: c.id, change })),
      ),
    [shown, compared],
  );
  const at = places.findIndex((p) => p.id === place?.id && p.change === place.change);
  const to = (p: Place | undefined) => {
    if (!p) return;
    setPlace(p);
    if (p.id !== search.change) go(changed(search, { change: p.id }));
  };
  const step = (by: number) =>
    to(places[(at < 0 ? (by > 0 ? 0 : places.length - 1) : at + by + places.length) % places.length]);
  useHotkeys([
    ['j', () => step(1)],
    ['k', () => step(-1)],
    ['u', () => go(changed(search, { mode: mode === 'split' ? 'unified' : undefined }))],
  ]);
  return (
    <div className="diff-page">
      <div className="diff-head">
        <Totals changes={all} compared={compared} />
        <span className="diff-place" role="status">
          {at >= 0
            ? t('Change {{n}} of {{total}}', { n: at + 1, total: places.length })
            : t('{{n}} changes', { n: places.length })}
        </span>
        <Step label={t('Previous change (k)')} act={() => step(-1)} up />
        <Step label={t('Next change (j)')} act={() => step(1)} />
        <SegmentedControl
          size="xs"
          aria-label={t('How changes are shown')}
          value={mode}
          data={[
            { value: 'split', label: t('Split') },
            { value: 'unified', label: t('Unified') },
          ]}
          onChange={(v) => go(changed(search, { mode: v === 'unified' ? v : undefined }))}
        />
        <Switch
          size="xs"
          label={t('Only fields from Git')}
          checked={!whole}
          onChange={(e) => go(changed(search, { whole: e.currentTarget.checked ? undefined : 'yes' }))}
        />
      </div>
      <nav className="diff-list" aria-label={t('Objects that differ')}>
        <TextInput
          size="xs"
          aria-label={t('Find changes')}
          placeholder={t('Kind, name, field')}
          leftSection={<IconSearch size={14} aria-hidden />}
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
        />
        <ul>
          {shown.map((c) => (
            <Entry
              key={c.id}
              change={c}
              compared={compared.get(c.id)}
              current={place?.id === c.id}
              open={() => to({ id: c.id, change: 0 })}
            />
          ))}
        </ul>
      </nav>
      <div className="diff-objects">
        <Dangers changes={shown} open={(id) => to({ id, change: 0 })} />
        {shown.length === 0 && <Nothing title={t('No change matches.')} />}
        {shown.map((c) => (
          <Section
            key={c.id}
            change={c}
            compared={compared.get(c.id)}
            mode={mode}
            place={place?.id === c.id ? place.change : undefined}
          />
        ))}
      </div>
    </div>
  );
}

function Step({ label, act, up = false }: { label: string; act: () => void; up?: boolean }) {
  return (
    <Tooltip label={label}>
      <ActionIcon variant="default" aria-label={label} onClick={act}>
        {up ? <IconChevronUp size={16} aria-hidden /> : <IconChevronDown size={16} aria-hidden />}
      </ActionIcon>
    </Tooltip>
  );
}

function Totals({ changes, compared }: { changes: ObjectChange[]; compared: ReadonlyMap<string, Comparison> }) {
  const of = (sort: ObjectChange['sort']) => changes.filter((c) => c.sort === sort).length;
  const [fresh, other, deleted] = [of('new'), of('changed'), of('deleted')];
  const parts = [
    fresh > 0 && t('{{n}} new', { n: fresh }),
    other > 0 && t('{{n}} changed', { n: other }),
    deleted > 0 && t('{{n}} deleted', { n: deleted }),
  ].filter(Boolean);
  const sums = [...compared.values()];
  return (
    <span className="diff-totals">
      <b>{count(changes.length, '{{n}} object', '{{n}} objects')}</b> {parts.join(', ')}{' '}
      <Counts added={sums.reduce((n, c) => n + c.added, 0)} removed={sums.reduce((n, c) => n + c.removed, 0)} />
    </span>
  );
}

function Counts({ added, removed }: { added: number; removed: number }) {
  return (
    <span className="diff-counts">
      {added > 0 && <span className="plus">+{added}</span>} {removed > 0 && <span className="minus">−{removed}</span>}
    </span>
  );
}

interface EntryProps {
  change: ObjectChange;
  compared: Comparison | undefined;
  current: boolean;
  open: () => void;
}

function Entry({ change, compared, current, open }: EntryProps) {
  const { object, sort } = change;
  return (
    <li>
      <button type="button" aria-current={current} onClick={open}>
        <span className="diff-name">
          {change.dangers.length > 0 && (
            <IconAlertTriangle size={14} aria-label={t('Dangerous')} className="diff-danger-mark" />
          )}
          {object.name}
        </span>
        <span className="diff-kind">
          {object.kind}
          {sort === 'new' && `, ${t('new')}`}
          {sort === 'deleted' && `, ${t('deleted')}`}
        </span>
        {compared && <Counts added={compared.added} removed={compared.removed} />}
      </button>
    </li>
  );
}

/** What should be looked at before anything else. */
function Dangers({ changes, open }: { changes: ObjectChange[]; open: (id: string) => void }) {
  const bad = changes.filter((c) => c.dangers.length > 0);
  if (bad.length === 0) return null;
  const listed = 5;
  return (
    <section className="diff-dangers" aria-label={t('Look at these first')}>
      <h3>
        <IconAlertTriangle size={16} aria-hidden /> {t('Look at these first')}
      </h3>
      <ul>
        {bad.slice(0, listed).map((c) => (
          <li key={c.id}>
            <button type="button" className="as-link" onClick={() => open(c.id)}>
              {c.object.kind} {c.object.name}
            </button>
            : {c.dangers.join(' ')}
          </li>
        ))}
      </ul>
      {bad.length > listed && <p>{t('{{n}} more are marked in the list.', { n: bad.length - listed })}</p>}
    </section>
  );
}

interface SectionProps {
  change: ObjectChange;
  compared: Comparison | undefined;
  mode: Mode;
  /** The change that one is at; undefined: none of this object. */
  place: number | undefined;
}

/** One object. Its lines are drawn once it comes near the window. */
function Section({ change, compared, mode, place }: SectionProps) {
  const { ref, entry } = useIntersection({ rootMargin: '600px' });
  const element = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState(false);
  const [closed, setClosed] = useState(false);
  useEffect(() => {
    if (entry?.isIntersecting) setSeen(true);
  }, [entry?.isIntersecting]);
  const drawn = (seen || place !== undefined) && compared !== undefined && !closed;
  useEffect(() => {
    if (place === undefined || !drawn) return;
    const rows = element.current?.querySelectorAll('tr[data-at]') ?? [];
    for (const row of rows) row.removeAttribute('data-at');
    const at = element.current?.querySelectorAll(`tr[data-change="${place}"]`) ?? [];
    for (const row of at) row.setAttribute('data-at', 'true');
    (at[0] ?? element.current)?.scrollIntoView({ block: 'center' });
  }, [place, drawn, mode]);
  const { object, sort } = change;
  const title = `${object.kind} ${object.namespace ? `${object.namespace}/` : ''}${object.name}`;
  return (
    <section className="diff-object" ref={element} aria-label={title}>
      <header ref={ref}>
        <button
          type="button"
          aria-expanded={!closed}
          onClick={() => setClosed(!closed)}
          aria-label={t('Lines of {{title}}', { title })}
        >
          {closed ? <IconChevronDown size={14} aria-hidden /> : <IconChevronUp size={14} aria-hidden />}
        </button>
        <b>{object.name}</b> <span className="quiet">{object.kind}</span>
        {sort !== 'changed' && (
          <span className={`diff-sort ${sort}`}>
            {sort === 'new' ? t('not in the cluster') : t('no longer in Git')}
          </span>
        )}
        {compared && <Counts added={compared.added} removed={compared.removed} />}
        {object.summary && <span className="quiet diff-summary">{object.summary}</span>}
      </header>
      {change.dangers.map((d) => (
        <p key={d} className="diff-danger">
          <IconAlertTriangle size={14} aria-hidden /> {d}
        </p>
      ))}
      {drawn ? (
        compared.changes > 0 ? (
          <Rows found={compared} mode={mode} />
        ) : (
          <p className="quiet diff-equal">
            {t('Nothing differs in the fields that Git sets.')}{' '}
            {object.summary ?? t('An apply takes over what others own.')}
          </p>
        )
      ) : (
        !closed && <div className="diff-later" />
      )}
    </section>
  );
}
