import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { t } from '../../../texts';
import type { LogOptions } from './options';
import { fieldsOf, type LogLine, type LogStore, matcher } from './store';

/** Height of a line, in pixels. */
const height = 20;
/** Lines above and below what can be seen that are drawn. */
const spare = 10;

/** The colour of a pod: pods keep theirs while the log is open. */
export function podColour(store: LogStore, pod: string): number {
  return [...store.pods.keys()].indexOf(pod) % 8;
}

/** The end of a pod's name, which tells it from its siblings. */
export function podShort(pod: string): string {
  return pod.split('-').at(-1) ?? pod;
}

function clock(time: string): string {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return '';
  const two = (n: number) => String(n).padStart(2, '0');
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, '0')}`;
}

interface Props {
  store: LogStore;
  options: LogOptions;
  /** Goes on at the end as lines come. */
  sticky: boolean;
  unstick: () => void;
  /** Place of the line that is looked at among the shown ones; -1: none. */
  at: number;
  choose: (place: number) => void;
}

/** How many characters of text go into a row, so that wrapped lines have a known height. */
function useColumns(host: React.RefObject<HTMLDivElement | null>, wrap: boolean): number {
  const [columns, setColumns] = useState(0);
  useLayoutEffect(() => {
    const element = host.current;
    if (!wrap || !element) return;
    const measure = () => {
      const probe = element.querySelector<HTMLElement>('.log-probe');
      const text = element.querySelector<HTMLElement>('.log-text');
      const one = (probe?.getBoundingClientRect().width ?? 0) / 10;
      if (one > 0 && text) setColumns(Math.max(Math.floor((text.clientWidth - 1) / one), 10));
    };
    measure();
    const seen = new ResizeObserver(measure);
    seen.observe(element);
    return () => seen.disconnect();
  }, [wrap, host]);
  return wrap ? columns : 0;
}

// Characters of East Asian scripts and pictures take two columns.
const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g;

function rowsOf(line: LogLine, columns: number): number {
  const length = line.text.length + (line.text.match(wide)?.length ?? 0);
  return Math.max(1, Math.ceil(length / columns));
}

/** Where each of the shown lines begins, in rows, kept up as lines come. */
class Offsets {
  #begins: number[] = [0];
  #key = '';

  of(shown: readonly LogLine[], columns: number, key: string): readonly number[] {
    const id = `${key} ${columns} ${shown[0]?.n ?? 0}`;
    if (id !== this.#key || this.#begins.length > shown.length + 1) {
      this.#begins = [0];
      this.#key = id;
    }
    for (let i = this.#begins.length - 1; i < shown.length; i++) {
      const line = shown[i];
      this.#begins.push((this.#begins[i] ?? 0) + (line ? rowsOf(line, columns) : 1));
    }
    return this.#begins;
  }
}

/** The line at a row: the last one that begins there or before. */
function lineAt(begins: readonly number[], row: number): number {
  let low = 0;
  let high = begins.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((begins[middle] ?? 0) <= row) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The lines of a log, of which only those that can be seen are drawn. */
export function LogRows({ store, options, sticky, unstick, at, choose }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const last = useRef(0); // where it was scrolled to
  const [top, setTop] = useState(0);
  const [space, setSpace] = useState(600);
  const [offsets] = useState(() => new Offsets());
  const columns = useColumns(host, options.wrap);
  const shown = store.shown;
  const filterKey = [
    options.filter,
    options.invert,
    options.level,
    options.hidden.join(),
    options.regex,
    options.matchCase,
  ].join('|');
  const begins = columns > 0 ? offsets.of(shown, columns, filterKey) : undefined;
  const rows = begins ? (begins.at(-1) ?? 0) : shown.length;
  const from = begins
    ? Math.max(lineAt(begins, Math.floor(top / height)) - spare, 0)
    : Math.max(Math.floor(top / height) - spare, 0);
  const to = Math.min(from + Math.ceil(space / height) + 2 * spare, shown.length);
  const beginOf = useCallback((i: number) => (begins ? (begins[i] ?? 0) : i) * height, [begins]);
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const seen = new ResizeObserver(() => setSpace(element.clientHeight));
    seen.observe(element);
    return () => seen.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = host.current;
    if (!element || !sticky) return;
    element.scrollTop = element.scrollHeight;
    last.current = element.scrollTop;
  }, [sticky, rows, space]);
  useLayoutEffect(() => {
    const element = host.current;
    if (!element || at < 0 || sticky) return;
    const y = beginOf(at);
    if (y < element.scrollTop + height || y > element.scrollTop + element.clientHeight - 2 * height) {
      element.scrollTop = y - element.clientHeight / 2;
    }
  }, [at, sticky]);
  const hit = options.find ? matcher(options.find, options) : undefined;
  return (
    <div
      ref={host}
      className="log-rows"
      role="log"
      aria-live="off"
      aria-label={t('Log')}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
      tabIndex={0}
      data-wrap={columns > 0}
      data-times={options.times}
      onScroll={(e) => {
        const { scrollTop, scrollHeight, clientHeight } = e.currentTarget;
        setTop(scrollTop);
        // A frame that has become lower, or lines that came meanwhile, are no scroll away from the end.
        const up = scrollTop < last.current;
        last.current = scrollTop;
        if (sticky && up && scrollHeight - scrollTop - clientHeight > 3 * height) unstick();
      }}
    >
      <span className="log-probe" aria-hidden>
        0123456789
      </span>
      <div className="log-sheet" style={{ height: rows * height }}>
        <div className="log-window" style={{ transform: `translateY(${beginOf(from)}px)` }}>
          {shown.slice(from, to).map((line, i) => (
            <Row
              // biome-ignore lint/suspicious/noArrayIndexKey: elements are used again as lines pass by
              key={i}
              line={line}
              store={store}
              options={options}
              rows={begins ? (begins[from + i + 1] ?? 0) - (begins[from + i] ?? 0) : 1}
              hit={hit?.(line.text) ?? false}
              current={from + i === at}
              choose={() => choose(from + i)}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  line: LogLine;
  store: LogStore;
  options: LogOptions;
  rows: number;
  hit: boolean;
  current: boolean;
  choose: () => void;
}

function Row({ line, store, options, rows, hit, current, choose }: RowProps) {
  if (line.notice) {
    return (
      <div className="log-notice" style={{ height: rows * height }}>
        {line.pod && <b>{podShort(line.pod)} </b>}
        {line.text}
      </div>
    );
  }
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the keys n, p and Enter of the viewer do the same
    // biome-ignore lint/a11y/noStaticElementInteractions: as above
    <div
      className="log-line"
      data-level={line.level}
      data-current={current}
      style={{ height: rows * height }}
      onClick={choose}
    >
      <span className="log-number">{line.n + 1}</span>
      {options.times && <span className="log-time">{clock(line.time)}</span>}
      {(store.pods.size > 1 || store.containers.size > 1) && (
        <span className="log-pod" data-colour={podColour(store, line.pod)} title={`${line.pod} ${line.container}`}>
          {store.pods.size > 1 ? podShort(line.pod) : line.container}
        </span>
      )}
      <Content line={line} options={options} hit={hit} />
    </div>
  );
}

function Content({ line, options, hit }: { line: LogLine; options: LogOptions; hit: boolean }) {
  const record = options.columns.length > 0 ? fieldsOf(line.text) : undefined;
  if (record) {
    const values = new Map(record);
    return (
      <span className="log-text log-columns">
        {options.columns.map((c) => (
          <span key={c} title={values.get(c)}>
            <Marked text={values.get(c) ?? ''} options={options} hit={hit} />
          </span>
        ))}
      </span>
    );
  }
  return (
    <span className="log-text">
      <Marked text={line.text} options={options} hit={hit} />
    </span>
  );
}

/** A text with what is searched for marked. */
function Marked({ text, options, hit }: { text: string; options: LogOptions; hit: boolean }) {
  if (!hit || !options.find) return text;
  const source = options.regex ? options.find : options.find.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const parts = text.split(new RegExp(`(${source.replace(/\((?!\?)/g, '(?:')})`, options.matchCase ? '' : 'i'));
  return parts.map((part, i) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: parts have no identity but their place
    i % 2 === 1 ? <mark key={i}>{part}</mark> : part,
  );
}
