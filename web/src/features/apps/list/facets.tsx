import { memo, type ReactNode, useState } from 'react';
import { t } from '../../../texts';
import { healthOrder, operationOrder, StateMark, stateOrder, syncOrder } from '../../../ui/badges';
import { type Facet, valuesOf } from './api';
import { chosen, toggled } from './terms';

/** The fields whose values are listed beside the list. */
export const facetNames = [
  'health',
  'sync',
  'state',
  'operation',
  'auto',
  'cluster',
  'project',
  'namespace',
  'repo',
  'revision',
  'owner',
  'label',
] as const;

const titles: Record<string, string> = {
  health: t('Health'),
  sync: t('Drift'),
  state: t('Needs somebody'),
  operation: t('Last operation'),
  auto: t('Automation'),
  cluster: t('Cluster'),
  project: t('Project'),
  namespace: t('Namespace'),
  repo: t('Repository'),
  revision: t('Target revision'),
  owner: t('Owner'),
  label: t('Labels'),
};

/** How many values are listed at first. */
const few = 8;

const marks: Record<string, Map<string, ReactNode>> = Object.fromEntries(
  (
    [
      ['health', healthOrder],
      ['sync', syncOrder],
      ['state', stateOrder],
      ['operation', operationOrder],
    ] as const
  ).map(([facet, order]) => [
    facet,
    new Map(order.map(([value, look]) => [value.toLowerCase(), <StateMark key={value} look={look} weight="quiet" />])),
  ]),
);

const words: Record<string, string> = { auto: t('Automatic'), manual: t('Manual'), paused: t('Paused') };

/** The name of a value, in the words of the console. */
function Value({ facet, value }: { facet: string; value: string }) {
  const mark = marks[facet]?.get(value);
  if (mark) return mark;
  return (
    <span className="word" title={value}>
      {value === '' ? t('none') : ((facet === 'auto' ? words[value] : undefined) ?? value)}
    </span>
  );
}

/**
 * The values that applications have, each with how many there are among those
 * that the rest of the query leaves. Chosen again, a value is given back.
 */
export const Facets = memo(function Facets({
  query,
  facets,
  change,
  open,
}: {
  query: string;
  facets: readonly Facet[];
  change: (query: string) => void;
  /** A phone shows them on request. */
  open: boolean;
}) {
  const keys = facets.filter((f) => f.field.startsWith('label:'));
  return (
    <aside className="facets" aria-label={t('Filter applications')} data-open={open}>
      {facetNames.map((name) => (
        <Group key={name} facet={name} title={titles[name] ?? name} query={query} facets={facets} change={change} />
      ))}
      {keys.map((f) => (
        <Group
          key={f.field}
          facet={f.field}
          title={f.field.slice('label:'.length)}
          query={query}
          facets={facets}
          change={change}
        />
      ))}
    </aside>
  );
});

function Group(props: {
  facet: string;
  title: string;
  query: string;
  facets: readonly Facet[];
  change: (query: string) => void;
}) {
  const { facet, title, query, facets, change } = props;
  const [all, setAll] = useState(false);
  const counts = valuesOf(facets, facet);
  const wanted = chosen(query, facet);
  const barred = chosen(query, facet, true);
  const known = [...(marks[facet]?.keys() ?? [])];
  const values = [...new Set([...known, ...counts.keys(), ...wanted, ...barred])].filter(
    (v) => (counts.has(v) && (facet !== 'state' || known.includes(v))) || wanted.includes(v) || barred.includes(v),
  );
  if (values.length === 0 || (facet === 'owner' && values.length === 1 && values[0] === '')) return null;
  const shown = all ? values : values.filter((v, i) => i < few || wanted.includes(v) || barred.includes(v));
  const more = facets.find((f) => f.field === facet)?.more ?? 0;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {shown.map((value) => (
        <div className="facet" key={value} data-barred={barred.includes(value)}>
          <button
            type="button"
            aria-pressed={wanted.includes(value)}
            onClick={() => change(toggled(query, facet, value))}
          >
            <Value facet={facet} value={value} />
            <span className="count">{counts.get(value) ?? 0}</span>
          </button>
          <button
            type="button"
            className="bar"
            aria-pressed={barred.includes(value)}
            aria-label={t('Exclude {{value}} of {{title}}', { value: value || t('none'), title })}
            title={t('Exclude')}
            onClick={() => change(toggled(query, facet, value, true))}
          >
            −
          </button>
        </div>
      ))}
      {!all && values.length > shown.length && (
        <button type="button" className="more" onClick={() => setAll(true)}>
          {t('{{n}} more', { n: values.length - shown.length })}
        </button>
      )}
      {(all || values.length <= few) && more > 0 && (
        <p className="quiet">{t('{{n}} more: write them in the query.', { n: more })}</p>
      )}
    </section>
  );
}
