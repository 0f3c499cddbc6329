import { under } from '../../../api/root';
import { number, t } from '../../../texts';

/** How a log is read and shown. The address has it, so that a link shows the same. */
export interface LogOptions {
  /** One container; empty: all. */
  container: string;
  /** Seconds back from now; 0: from the beginning. */
  since: number;
  /** Of each container only so many lines at first; 0: all. */
  tail: number;
  previous: boolean;
  follow: boolean;
  /** What is searched for. */
  find: string;
  /** Only lines with this text, or without it. */
  filter: string;
  invert: boolean;
  /** The search and the filter distinguish upper and lower case. */
  matchCase: boolean;
  /** They are regular expressions. */
  regex: boolean;
  /** Lines of this level alone; empty: all. */
  level: '' | 'warn' | 'error';
  times: boolean;
  wrap: boolean;
  /** Keys of JSON lines that are columns. */
  columns: string[];
  /** Pods that are not shown. */
  hidden: string[];
  /** The line that a link is of: its time, pod and container. */
  line: string;
}

export const defaults: LogOptions = {
  container: '',
  since: 0,
  tail: 1000,
  previous: false,
  follow: true,
  find: '',
  filter: '',
  invert: false,
  matchCase: false,
  regex: false,
  level: '',
  times: true,
  wrap: false,
  columns: [],
  hidden: [],
  line: '',
};

/** The choices of the menu, in seconds. */
export const sinces = [
  { value: '0', label: t('Since the beginning') },
  { value: '60', label: t('Last minute') },
  { value: '900', label: t('Last 15 minutes') },
  { value: '3600', label: t('Last hour') },
  { value: '86400', label: t('Last day') },
];

export const tails = [
  { value: '100', label: t('{{n}} lines', { n: number(100) }) },
  { value: '1000', label: t('{{n}} lines', { n: number(1000) }) },
  { value: '10000', label: t('{{n}} lines', { n: number(10_000) }) },
  { value: '0', label: t('All lines') },
];

/** Reads the part of the address that is about logs. What makes no sense counts as absent. */
export function readOptions(text: string | undefined): LogOptions {
  const q = new URLSearchParams(text ?? '');
  const word = (name: string, otherwise: string) => q.get(name) ?? otherwise;
  const count = (name: string, otherwise: number) => {
    const n = Number(q.get(name) ?? otherwise);
    return Number.isInteger(n) && n >= 0 && n <= 315_360_000 ? n : otherwise;
  };
  const flag = (name: string, otherwise: boolean) => {
    const said = q.get(name);
    return said === 'yes' ? true : said === 'no' ? false : otherwise;
  };
  const many = (name: string) => (q.get(name) ?? '').split(',').filter(Boolean);
  const level = q.get('level');
  return {
    container: word('container', ''),
    since: count('since', defaults.since),
    tail: Math.min(count('tail', defaults.tail), 1_000_000),
    previous: flag('previous', false),
    follow: flag('follow', true),
    find: word('find', ''),
    filter: word('filter', ''),
    invert: flag('invert', false),
    matchCase: flag('case', false),
    regex: flag('regex', false),
    level: level === 'warn' || level === 'error' ? level : '',
    times: flag('times', true),
    wrap: flag('wrap', false),
    columns: many('columns'),
    hidden: many('hidden'),
    line: word('line', ''),
  };
}

/** The same as text; what is as it is without saying is left out. */
export function writeOptions(o: LogOptions): string {
  const q = new URLSearchParams();
  const word = (name: string, value: string) => value && q.set(name, value);
  const flag = (name: string, value: boolean, otherwise: boolean) =>
    value !== otherwise && q.set(name, value ? 'yes' : 'no');
  word('container', o.container);
  if (o.since !== defaults.since) q.set('since', String(o.since));
  if (o.tail !== defaults.tail) q.set('tail', String(o.tail));
  flag('previous', o.previous, false);
  flag('follow', o.follow, true);
  word('find', o.find);
  word('filter', o.filter);
  flag('invert', o.invert, false);
  flag('case', o.matchCase, false);
  flag('regex', o.regex, false);
  word('level', o.level);
  flag('times', o.times, true);
  flag('wrap', o.wrap, false);
  word('columns', o.columns.join(','));
  word('hidden', o.hidden.join(','));
  word('line', o.line);
  return q.toString();
}

/** Whose logs are read: those of an application, of one pod, or of the pods of one object. */
export interface Target {
  namespace: string;
  app: string;
  object?: { group: string; kind: string; namespace: string; name: string } | undefined;
}

/** The line of a link. */
export function readLine(text: string): { time: string; pod: string; container: string } | undefined {
  const [time = '', pod = '', container = ''] = text.split(' ');
  return Number.isNaN(Date.parse(time)) || !pod ? undefined : { time, pod, container };
}

/** A link shows lines from so long before the line to so long after it, in milliseconds. */
const around = 60_000;

/** The address of a log at the hub. Filters stay here: they are changed without reading again. */
export function logAddress(target: Target, o: LogOptions, how: { from?: string; download?: boolean } = {}): string {
  const q = new URLSearchParams();
  const { object } = target;
  if (object) {
    q.set('resourceNamespace', object.namespace);
    if (object.group === '' && object.kind === 'Pod') q.set('podName', object.name);
    else {
      if (object.group) q.set('group', object.group);
      q.set('kind', object.kind);
      q.set('resourceName', object.name);
    }
  }
  if (o.container) q.set('container', o.container);
  if (o.previous) q.set('previous', 'true');
  const line = readLine(o.line);
  if (how.download) {
    q.set('download', 'true');
    q.set('timestamps', String(o.times));
    if (o.filter && !o.regex) {
      q.set('filter', (o.invert ? '!' : '') + o.filter);
      if (o.matchCase) q.set('matchCase', 'true');
    }
  }
  if (how.from) q.set('sinceTime', how.from);
  else if (line && !how.download) {
    q.set('sinceTime', new Date(Date.parse(line.time) - around).toISOString());
    q.set('untilTime', new Date(Date.parse(line.time) + around).toISOString());
  } else {
    if (o.since > 0) q.set('sinceSeconds', String(o.since));
    if (o.tail > 0) q.set('tailLines', String(o.tail));
  }
  if (o.follow && !o.previous && !line && !how.download) q.set('follow', 'true');
  const path = [target.namespace, target.app].map(encodeURIComponent).join('/');
  return under(`/api/v1/applications/${path}/logs?${q}`);
}
