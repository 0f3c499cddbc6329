import { t } from '../../../texts';
import { healthOrder, operationOrder, StateMark, stateOrder, syncOrder } from '../../../ui/badges';
import { type Facet, valuesOf } from './api';
import { toggled } from './terms';

interface Slice {
  value: string;
  label: string;
  tone: string;
  count: number;
}

const around = 2 * Math.PI * 40;

/** Shares of a whole as a ring. The list beside it says the same in words. */
function Ring({ slices, title }: { slices: Slice[]; title: string }) {
  const total = slices.reduce((n, s) => n + s.count, 0);
  let before = 0;
  return (
    <svg viewBox="0 0 100 100" width={120} height={120} role="img" aria-label={title} className="ring">
      <circle cx="50" cy="50" r="40" className="track" />
      {slices.map((s) => {
        const length = total > 0 ? (s.count / total) * around : 0;
        const start = before;
        before += length;
        return (
          <circle
            key={s.value}
            cx="50"
            cy="50"
            r="40"
            data-tone={s.tone}
            strokeDasharray={`${length} ${around - length}`}
            strokeDashoffset={-start}
            transform="rotate(-90 50 50)"
          />
        );
      })}
      <text x="50" y="56" textAnchor="middle">
        {total}
      </text>
    </svg>
  );
}

const orders = [
  ['health', t('Health'), healthOrder],
  ['sync', t('Drift'), syncOrder],
  ['operation', t('Last operation'), operationOrder],
] as const;

/** How all applications of the query are, in numbers. Each leads to the list of them. */
export function Summary({
  query,
  facets,
  open,
}: {
  query: string;
  facets: readonly Facet[];
  open: (query: string) => void;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section className="list summary" aria-label={t('Applications in numbers')} tabIndex={0}>
      {orders.map(([facet, title, order]) => {
        const counts = valuesOf(facets, facet);
        const slices = order
          .map(([value, look]) => ({ value: value.toLowerCase(), look }))
          .filter((s) => counts.has(s.value));
        return (
          <section key={facet} aria-label={title} className="card">
            <h3>{title}</h3>
            <Ring
              title={title}
              slices={slices.map((s) => ({
                value: s.value,
                label: s.look.label,
                tone: s.look.tone,
                count: counts.get(s.value) ?? 0,
              }))}
            />
            <ul>
              {slices.map((s) => (
                <li key={s.value}>
                  <button type="button" onClick={() => open(toggled(query, facet, s.value))}>
                    <StateMark look={s.look} weight="quiet" />
                    <span className="count">{counts.get(s.value)}</span>
                  </button>
                </li>
              ))}
            </ul>
          </section>
        );
      })}
      <Bars facet="state" title={t('Needs somebody')} query={query} facets={facets} open={open} names={stateNames} />
      <Bars facet="cluster" title={t('Clusters')} query={query} facets={facets} open={open} />
      <Bars facet="project" title={t('Projects')} query={query} facets={facets} open={open} />
      <Bars facet="namespace" title={t('Namespaces')} query={query} facets={facets} open={open} />
    </section>
  );
}

const stateNames = new Map(stateOrder.map(([state, look]) => [state.toLowerCase(), look.label]));

/** How many values are drawn. */
const most = 10;

function Bars(props: {
  facet: string;
  title: string;
  query: string;
  facets: readonly Facet[];
  open: (query: string) => void;
  /** Only these values, by these names. */
  names?: Map<string, string>;
}) {
  const { facet, title, query, facets, open, names } = props;
  const all = [...valuesOf(facets, facet)].filter(([value]) => !names || names.has(value));
  const largest = Math.max(1, ...all.map(([, n]) => n));
  if (all.length === 0) return null;
  const others = all.length - most + (facets.find((f) => f.field === facet)?.more ?? 0);
  return (
    <section aria-label={title} className="card">
      <h3>{title}</h3>
      <ul className="bars">
        {all.slice(0, most).map(([value, n]) => (
          <li key={value}>
            <button type="button" onClick={() => open(toggled(query, facet, value))}>
              <span className="word">{names?.get(value) ?? (value || t('none'))}</span>
              <span className="track" aria-hidden>
                <i style={{ width: `${(n / largest) * 100}%` }} />
              </span>
              <span className="count">{n}</span>
            </button>
          </li>
        ))}
      </ul>
      {others > 0 && <p className="quiet">{t('and {{n}} more', { n: others })}</p>}
    </section>
  );
}
