import { ActionIcon, Button, Select, Switch, TextInput, Tooltip } from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import {
  IconArrowsDiagonal,
  IconChevronDown,
  IconChevronUp,
  IconCopy,
  IconDownload,
  IconLetterCase,
  IconPlayerPause,
  IconPlayerPlay,
  IconRegex,
  IconSearch,
  IconTextWrap,
} from '@tabler/icons-react';
import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import type { Node } from '../../../api/client';
import { exact } from '../../../format/format';
import { Nothing, Problem } from '../../../ui/states';
import type { AppKey } from '../api';
import { type AppSearch, changed } from '../search';
import './logs.css';
import { count, number, t } from '../../../texts';
import {
  type LogOptions,
  logAddress,
  readLine,
  readOptions,
  sinces,
  type Target,
  tails,
  writeOptions,
} from './options';
import { type Reading, useLog } from './reader';
import { LogRows, podColour, podShort } from './rows';
import { commonKeys, fieldsOf, type LogLine, type LogStore, matcher } from './store';

interface Props {
  appKey: AppKey;
  nodes: Node[];
  /** The object whose pods are read; absent: those of the application. */
  target?: Node;
  search: AppSearch;
  go: (search: AppSearch) => void;
}

type Set = (change: Partial<LogOptions>) => void;

/** The logs of a pod, of the pods of an object, or of all pods of an application. */
export default function Logs({ appKey, nodes, target, search, go }: Props) {
  const options = useMemo(() => readOptions(search.log), [search.log]);
  // Two fields may change before the address does; neither takes back what the other wrote.
  const latest = useRef(options);
  latest.current = options;
  const set: Set = (change) => {
    latest.current = { ...latest.current, ...change };
    go(changed(search, { log: writeOptions(latest.current) }));
  };
  if (!target && !nodes.some((n) => n.group === '' && n.kind === 'Pod')) {
    return <Nothing title={t('The application has no pods.')}>{t('Logs come from containers of pods.')}</Nothing>;
  }
  const whose: Target = {
    namespace: appKey.namespace,
    app: appKey.name,
    object: target && { group: target.group, kind: target.kind, namespace: target.namespace ?? '', name: target.name },
  };
  return <Viewer target={whose} options={options} set={set} />;
}

function Viewer({ target, options, set }: { target: Target; options: LogOptions; set: Set }) {
  const { store, reading, again } = useLog(target, options);
  const [sticky, setSticky] = useState(options.line === '');
  const [at, setAt] = useState(-1);
  const { full, toggle } = useFullScreen();
  const find = useRef<HTMLInputElement>(null);
  const line = at >= 0 ? store.shown[at] : undefined;
  useLink(store, options.line, (place) => {
    setSticky(false);
    setAt(place);
  });
  const step = (by: 1 | -1) => {
    const place = nextMatch(store.matches, at, by);
    if (place === undefined) return;
    setSticky(false);
    setAt(place);
  };
  useHotkeys([
    ['n', () => step(1)],
    ['shift+n', () => step(-1)],
    ['p', () => step(-1)],
    ['w', () => set({ wrap: !options.wrap })],
    ['t', () => set({ times: !options.times })],
    ['mod+f', () => find.current?.focus()],
    ['End', () => setSticky(true)],
  ]);
  if (reading.state === 'failed') return <Problem error={reading.error} retry={again} />;
  return (
    <section className="log-viewer" data-full={full} aria-label={t('Log viewer')}>
      <SourceTools options={options} set={set} store={store} />
      <SearchTools options={options} set={set} store={store} at={at} step={step} input={find} />
      <div className="log-tools">
        <Levels options={options} set={set} store={store} />
        <ShowTools options={options} set={set} store={store} target={target} full={full} toggle={toggle} />
        <Button
          size="xs"
          variant={sticky ? 'light' : 'default'}
          aria-pressed={sticky}
          leftSection={sticky ? <IconPlayerPause size={14} aria-hidden /> : <IconPlayerPlay size={14} aria-hidden />}
          onClick={() => setSticky(!sticky)}
        >
          {sticky ? t('Following') : t('Follow')}
        </Button>
      </div>
      <div className="log-body">
        <PodList store={store} options={options} set={set} />
        <LogRows
          store={store}
          options={options}
          sticky={sticky}
          unstick={() => setSticky(false)}
          at={at}
          choose={(place) => {
            setSticky(false);
            setAt(place === at ? -1 : place);
          }}
        />
      </div>
      {line && !line.notice && <Details line={line} options={options} set={set} close={() => setAt(-1)} />}
      <Foot store={store} reading={reading} options={options} set={set} />
    </section>
  );
}

/**
 * The viewer on the whole screen. The page as a whole is given the screen, because
 * menus of the viewer are drawn beside it. Where the browser refuses, the viewer
 * takes the window.
 */
function useFullScreen() {
  const [full, setFull] = useState(false);
  useEffect(() => {
    if (!full) return;
    const left = () => !document.fullscreenElement && setFull(false);
    const typed = (e: KeyboardEvent) => e.key === 'Escape' && !document.fullscreenElement && setFull(false);
    document.addEventListener('fullscreenchange', left);
    document.addEventListener('keydown', typed);
    return () => {
      document.removeEventListener('fullscreenchange', left);
      document.removeEventListener('keydown', typed);
      if (document.fullscreenElement) void document.exitFullscreen();
    };
  }, [full]);
  const toggle = () => {
    setFull(!full);
    if (!full) document.documentElement.requestFullscreen?.().catch(() => undefined);
  };
  return { full, toggle };
}

/** The match after or before a place, around the ends. */
export function nextMatch(matches: readonly number[], at: number, by: 1 | -1): number | undefined {
  if (by === 1) return matches.find((m) => m > at) ?? matches[0];
  return matches.findLast((m) => m < at) ?? matches.at(-1);
}

/** Goes to the line of a link once it is there. */
function useLink(store: LogStore, link: string, show: (place: number) => void) {
  const done = useRef('');
  useEffect(() => {
    const wanted = readLine(link);
    if (!wanted || done.current === link) return;
    const place = store.shown.findIndex(
      (l) => !l.notice && l.time === wanted.time && l.pod === wanted.pod && l.container === wanted.container,
    );
    if (place < 0) return;
    done.current = link;
    show(place);
  });
}

interface Tools {
  options: LogOptions;
  set: Set;
  store: LogStore;
}

function SourceTools({ options, set, store }: Tools) {
  const containers = [...new Set([...store.containers, ...(options.container ? [options.container] : [])])].sort();
  return (
    <div className="log-tools">
      <Select
        size="xs"
        w={150}
        aria-label={t('Container')}
        allowDeselect={false}
        value={options.container}
        data={[{ value: '', label: t('All containers') }, ...containers.map((c) => ({ value: c, label: c }))]}
        onChange={(v) => set({ container: v ?? '', line: '' })}
      />
      <Select
        size="xs"
        w={200}
        aria-label={t('Since')}
        allowDeselect={false}
        value={String(options.since)}
        data={
          sinces.some((s) => s.value === String(options.since))
            ? sinces
            : [
                ...sinces,
                { value: String(options.since), label: t('Last {{since}} seconds', { since: options.since }) },
              ]
        }
        onChange={(v) => set({ since: Number(v), line: '' })}
      />
      <Select
        size="xs"
        w={120}
        aria-label={t('Lines of each container')}
        allowDeselect={false}
        value={String(options.tail)}
        data={
          tails.some((tail) => tail.value === String(options.tail))
            ? tails
            : [...tails, { value: String(options.tail), label: t('{{n}} lines', { n: options.tail }) }]
        }
        onChange={(v) => set({ tail: Number(v), line: '' })}
      />
      <Switch
        size="xs"
        label={t('Previous')}
        checked={options.previous}
        onChange={(e) => set({ previous: e.currentTarget.checked, line: '' })}
      />
      <Switch
        size="xs"
        label={t('Times')}
        checked={options.times}
        onChange={(e) => set({ times: e.currentTarget.checked })}
      />
    </div>
  );
}

/** A text field that changes the address when its writer rests. */
function Typed({
  value,
  change,
  ...rest
}: { value: string; change: (value: string) => void } & Omit<
  React.ComponentProps<typeof TextInput>,
  'value' | 'onChange'
>) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => change(text), 150);
    return () => clearTimeout(timer);
  }, [text]);
  return <TextInput {...rest} value={text} onChange={(e) => setText(e.currentTarget.value)} />;
}

function SearchTools({
  options,
  set,
  store,
  at,
  step,
  input,
}: Tools & { at: number; step: (by: 1 | -1) => void; input: React.RefObject<HTMLInputElement | null> }) {
  const { matches } = store;
  const place = matches.indexOf(at);
  const wrong =
    (options.find && !matcher(options.find, options)) || (options.filter && !matcher(options.filter, options));
  return (
    <div className="log-tools">
      <Typed
        ref={input}
        size="xs"
        className="log-find"
        aria-label={t('Find in the log')}
        placeholder={t('Find')}
        leftSection={<IconSearch size={14} aria-hidden />}
        value={options.find}
        change={(find) => set({ find })}
        onKeyDown={(e) => {
          if (e.key === 'Enter') step(e.shiftKey ? -1 : 1);
        }}
        error={wrong ? t('This is no regular expression.') : undefined}
      />
      <span className="log-count" role="status">
        {options.find ? counted(place, matches.length) : ''}
      </span>
      <Tool label={t('Previous match (p)')} act={() => step(-1)}>
        <IconChevronUp size={14} aria-hidden />
      </Tool>
      <Tool label={t('Next match (n)')} act={() => step(1)}>
        <IconChevronDown size={14} aria-hidden />
      </Tool>
      <Tool label={t('Match case')} on={options.matchCase} act={() => set({ matchCase: !options.matchCase })}>
        <IconLetterCase size={14} aria-hidden />
      </Tool>
      <Tool label={t('Regular expression')} on={options.regex} act={() => set({ regex: !options.regex })}>
        <IconRegex size={14} aria-hidden />
      </Tool>
      <Typed
        size="xs"
        className="log-filter"
        aria-label={t('Filter lines')}
        placeholder={options.invert ? t('Without this text') : t('Only with this text')}
        value={options.filter}
        change={(filter) => set({ filter })}
      />
      <Switch
        size="xs"
        label={t('Invert')}
        checked={options.invert}
        onChange={(e) => set({ invert: e.currentTarget.checked })}
      />
    </div>
  );
}

function Tool({ label, on, act, children }: { label: string; on?: boolean; act: () => void; children: ReactNode }) {
  return (
    <Tooltip label={label}>
      <ActionIcon
        variant={on ? 'light' : 'subtle'}
        color={on ? 'blue' : 'gray'}
        aria-label={label}
        {...(on === undefined ? {} : { 'aria-pressed': on })}
        onClick={act}
      >
        {children}
      </ActionIcon>
    </Tooltip>
  );
}

/** How many match, and which of them one is at; -1: at none. */
const counted = (place: number, total: number) =>
  place >= 0 ? t('{{n}} of {{total}}', { n: place + 1, total: number(total) }) : number(total);

function Levels({ options, set, store }: Tools) {
  const levels = [
    { level: '', label: t('All') },
    { level: 'warn', label: count(store.warnings + store.errors, '{{n}} warning', '{{n}} warnings') },
    { level: 'error', label: count(store.errors, '{{n}} error', '{{n}} errors') },
  ] as const;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset has a look of its own
    <div className="log-levels" role="group" aria-label={t('Level')}>
      {levels.map((l) => (
        <button
          key={l.level}
          type="button"
          data-level={l.level}
          aria-pressed={options.level === l.level}
          onClick={() => set({ level: l.level })}
        >
          {l.label}
        </button>
      ))}
    </div>
  );
}

function ShowTools({
  options,
  set,
  store,
  target,
  full,
  toggle,
}: Tools & { target: Target; full: boolean; toggle: () => void }) {
  const [copied, setCopied] = useState('');
  const copy = () => {
    const text = store.shown.map((l) => (options.times && l.time ? `${l.time} ${l.text}` : l.text)).join('\n');
    const done = count(store.shown.length, '{{n}} line copied.', '{{n}} lines copied.');
    const failed = () => setCopied(t('The browser did not let the lines be copied.'));
    if (!navigator.clipboard) failed();
    else navigator.clipboard.writeText(text).then(() => setCopied(done), failed);
  };
  const columns = () => set({ columns: options.columns.length > 0 ? [] : commonKeys(store.shown) });
  return (
    <div className="log-show">
      <Button size="xs" variant="subtle" color="gray" aria-pressed={options.columns.length > 0} onClick={columns}>
        {options.columns.length > 0 ? t('As text') : t('As columns')}
      </Button>
      <Tool label={t('Wrap lines (w)')} on={options.wrap} act={() => set({ wrap: !options.wrap })}>
        <IconTextWrap size={16} aria-hidden />
      </Tool>
      <span className="quiet" role="status">
        {copied}
      </span>
      <Tool label={t('Copy what is shown')} act={copy}>
        <IconCopy size={16} aria-hidden />
      </Tool>
      <Tooltip label={t('Download')}>
        <ActionIcon
          component="a"
          variant="subtle"
          color="gray"
          aria-label={t('Download')}
          href={logAddress(target, options, { download: true })}
          download
        >
          <IconDownload size={16} aria-hidden />
        </ActionIcon>
      </Tooltip>
      <Tool label={full ? t('Leave full screen') : t('Full screen')} on={full} act={toggle}>
        <IconArrowsDiagonal size={16} aria-hidden />
      </Tool>
    </div>
  );
}

/** The pods that have written, with their colours and counts. One alone needs no list. */
function PodList({ store, options, set }: Tools) {
  if (store.pods.size < 2) return null;
  const toggle = (pod: string) =>
    set({ hidden: options.hidden.includes(pod) ? options.hidden.filter((p) => p !== pod) : [...options.hidden, pod] });
  return (
    <section className="log-pods" aria-label={t('Pods')}>
      <h4>
        {t('Pods')} {store.pods.size}
      </h4>
      {[...store.pods].map(([pod, lines]) => (
        <label key={pod} title={pod}>
          <input type="checkbox" checked={!options.hidden.includes(pod)} onChange={() => toggle(pod)} />
          <span className="log-pod" data-colour={podColour(store, pod)}>
            {podShort(pod)}
          </span>
          <span className="quiet">{number(lines)}</span>
        </label>
      ))}
    </section>
  );
}

/** One line whole: its fields if it is JSON, and a link to it. */
function Details({ line, options, set, close }: { line: LogLine; options: LogOptions; set: Set; close: () => void }) {
  const record = fieldsOf(line.text);
  const link = () => {
    const here = new URL(window.location.href);
    here.searchParams.set('log', writeOptions({ ...options, line: `${line.time} ${line.pod} ${line.container}` }));
    void navigator.clipboard?.writeText(here.href);
  };
  const column = (key: string) =>
    set({
      columns: options.columns.includes(key) ? options.columns.filter((c) => c !== key) : [...options.columns, key],
    });
  return (
    <section className="log-details" aria-label={t('Line {{n}}', { n: line.n + 1 })}>
      <header>
        <span className="quiet">
          {t('Line {{n}}', { n: line.n + 1 })}, {exact(line.time)}, {line.pod}, {line.container}
        </span>
        <Button size="xs" variant="default" onClick={link} disabled={!line.time}>
          {t('Copy link')}
        </Button>
        <Button size="xs" variant="default" onClick={() => void navigator.clipboard?.writeText(line.text)}>
          {t('Copy line')}
        </Button>
        <Button size="xs" variant="subtle" color="gray" onClick={close}>
          {t('Close')}
        </Button>
      </header>
      {record ? (
        <dl className="mono">
          {record.map(([key, value]) => (
            <div key={key}>
              <dt>
                <button
                  type="button"
                  className="as-link"
                  aria-pressed={options.columns.includes(key)}
                  onClick={() => column(key)}
                  title={t('Show as a column')}
                >
                  {key}
                </button>
              </dt>
              <dd className="breakable">{value}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <pre className="breakable">{line.text}</pre>
      )}
    </section>
  );
}

const words: Record<Reading['state'], string> = {
  reading: t('Live'),
  ended: t('Complete: nothing more comes'),
  interrupted: t('Interrupted: reading again soon'),
  failed: '',
};

function Foot({ store, reading, options, set }: Tools & { reading: Reading }) {
  const all = store.count - store.gone;
  const shown = store.shown.length;
  return (
    <footer className="log-foot" role="status">
      <span className="state quiet" data-tone={reading.state === 'interrupted' ? 'attention' : 'unknown'}>
        {words[reading.state]}
      </span>
      <span>
        {shown === all
          ? t('{{n}} lines', { n: number(all) })
          : t('{{n}} of {{total}} lines', { n: number(shown), total: number(all) })}
      </span>
      {store.gone > 0 && <span>{t('{{n}} older lines are no longer held', { n: number(store.gone) })}</span>}
      {store.newest && <span>{t('newest {{time}}', { time: exact(store.newest) })}</span>}
      {options.line && (
        <button type="button" className="as-link" onClick={() => set({ line: '' })}>
          {t('Lines around a link; show the newest')}
        </button>
      )}
      {all === 0 && reading.state !== 'interrupted' && <span>{t('No lines yet.')}</span>}
    </footer>
  );
}
