import type { LogEntry } from '../../../api/client';
import { number, t } from '../../../texts';

export type Level = '' | 'info' | 'warn' | 'error';

/** A line of a log, or a notice between lines. */
export interface LogLine {
  /** Its place since the beginning, from 0. */
  n: number;
  time: string;
  pod: string;
  container: string;
  text: string;
  level: Level;
  notice: boolean;
}

/** What is shown and searched for. */
export interface Looking {
  filter: string;
  invert: boolean;
  find: string;
  matchCase: boolean;
  regex: boolean;
  level: '' | 'warn' | 'error';
  hidden: readonly string[];
}

export const everything: Looking = {
  filter: '',
  invert: false,
  find: '',
  matchCase: false,
  regex: false,
  level: '',
  hidden: [],
};

/** So many lines are held; then the oldest go. */
const most = 1_000_000;

// biome-ignore lint/suspicious/noControlCharactersInRegex: what colours a terminal begins with one
const colours = /\u001b\[[0-9;]*[A-Za-z]/g;
// Links, titles and everything else that a terminal would obey, and what turns the direction of text.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are looked for
const controls = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/** A line as it is shown, copied and searched: without colours, and with other control characters made visible. */
export function harmless(content: string): string {
  if (content.search(controls) < 0) return content;
  return content
    .replace(colours, '')
    .replace(controls, (c) =>
      c < ' ' ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : c === '\u007f' ? '\u2421' : '\ufffd',
    );
}

const structured = /"(?:level|lvl|severity|loglevel)"\s*:\s*"?(\w+)/i;
const plain = /\b(fatal|panic|critical|error|err|warn|warning|info)\b/i;

/** The level that a line names, as far as people look for it. */
export function levelOf(text: string): Level {
  const head = text.slice(0, 300);
  const said = (head.startsWith('{') ? structured : plain).exec(head)?.[1]?.toLowerCase() ?? '';
  if (/^(fatal|panic|crit|err|emerg|alert)/.test(said)) return 'error';
  if (said.startsWith('warn')) return 'warn';
  return said ? 'info' : '';
}

/** Whether a text has what is searched for; undefined: the expression is wrong. */
export function matcher(
  wanted: string,
  how: { matchCase: boolean; regex: boolean },
): ((text: string) => boolean) | undefined {
  if (how.regex) {
    try {
      const expression = new RegExp(wanted, how.matchCase ? '' : 'i');
      return (text) => expression.test(text);
    } catch {
      return undefined;
    }
  }
  if (how.matchCase) return (text) => text.includes(wanted);
  const lower = wanted.toLowerCase();
  return (text) => text.toLowerCase().includes(lower);
}

type Test = (line: LogLine) => boolean;

/**
 * The lines of a log that is being read. What is shown and what matches the
 * search is kept up with each line, so that a follower costs what is new only.
 */
export class LogStore {
  /** Lines since the beginning, with those that have gone. */
  count = 0;
  /** Lines that have gone because there were too many. */
  gone = 0;
  warnings = 0;
  errors = 0;
  readonly pods = new Map<string, number>();
  readonly containers = new Set<string>();
  /** Of the newest line. */
  newest = '';
  /** Changes with every change. */
  version = 0;

  #lines: LogLine[] = [];
  #shown: LogLine[] = [];
  #matches: number[] = [];
  #filtered = false;
  #keep: Test = () => true;
  #hit: Test | undefined;
  #partial = new Map<string, LogLine>();
  readonly #listeners = new Set<() => void>();

  readonly subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
  readonly snapshot = () => this.version;

  /** The lines that the filters leave. */
  get shown(): readonly LogLine[] {
    return this.#filtered ? this.#shown : this.#lines;
  }

  /** Places among the shown lines that have what is searched for. */
  get matches(): readonly number[] {
    return this.#matches;
  }

  /** Empties the store, to read another log. */
  clear() {
    this.#lines = [];
    this.count = this.gone = this.warnings = this.errors = 0;
    this.newest = '';
    this.pods.clear();
    this.containers.clear();
    this.#partial.clear();
    this.#rebuild();
    this.changed();
  }

  /** Adds what came, and tells nobody: changed does. */
  add(entries: readonly LogEntry[]) {
    for (const entry of entries) this.#one(entry);
    if (this.#lines.length > most) {
      const drop = this.#lines.length - most + most / 10;
      this.gone += drop;
      this.#lines = this.#lines.slice(drop);
      this.#rebuild();
    }
  }

  /** Tells who looks. */
  changed() {
    this.version++;
    for (const listener of this.#listeners) listener();
  }

  /** Changes what is shown and searched for. */
  look(l: Looking) {
    const filter = l.filter ? matcher(l.filter, l) : undefined;
    const hidden = new Set(l.hidden);
    this.#filtered = filter !== undefined || l.level !== '' || hidden.size > 0;
    this.#keep = (line) =>
      line.notice ||
      ((!filter || filter(line.text) !== l.invert) &&
        (l.level === '' || line.level === 'error' || (l.level === 'warn' && line.level === 'warn')) &&
        !hidden.has(line.pod));
    const hit = l.find ? matcher(l.find, l) : undefined;
    this.#hit = hit && ((line) => !line.notice && hit(line.text));
    this.#rebuild();
    this.changed();
  }

  #rebuild() {
    this.#shown = [];
    this.#matches = [];
    if (!this.#filtered && !this.#hit) return;
    let at = 0;
    for (const line of this.#lines) {
      if (this.#filtered) {
        if (!this.#keep(line)) continue;
        this.#shown.push(line);
      }
      if (this.#hit?.(line)) this.#matches.push(at);
      at++;
    }
  }

  #one(entry: LogEntry) {
    const { skipped = 0, notice, content, podName: pod = '', container = '', timeStamp: time = '' } = entry;
    if (skipped > 0)
      this.#put(
        pod,
        container,
        '',
        t('{{n}} lines are missing here: this reader was too slow.', { n: number(skipped) }),
        true,
      );
    if (notice) this.#put(pod, container, time, notice, true);
    if (content === undefined) return;
    const id = `${pod}/${container}`;
    const text = harmless(content);
    const begun = this.#partial.get(id);
    if (begun) begun.text += text;
    const line = begun ?? this.#put(pod, container, time, text, false);
    if (entry.partial) this.#partial.set(id, line);
    else this.#partial.delete(id);
  }

  #put(pod: string, container: string, time: string, text: string, notice: boolean): LogLine {
    const line: LogLine = { n: this.count++, time, pod, container, text, level: notice ? '' : levelOf(text), notice };
    this.#lines.push(line);
    if (!notice) {
      if (line.level === 'warn') this.warnings++;
      if (line.level === 'error') this.errors++;
      this.pods.set(pod, (this.pods.get(pod) ?? 0) + 1);
      this.containers.add(container);
      if (time) this.newest = time;
    }
    const place = this.#filtered ? this.#shown.length : this.#lines.length - 1;
    if (this.#filtered) {
      if (!this.#keep(line)) return line;
      this.#shown.push(line);
    }
    if (this.#hit?.(line)) this.#matches.push(place);
    return line;
  }
}

/** The fields of a line of JSON; undefined: it is none. */
export function fieldsOf(text: string): [string, string][] | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    return Object.entries(value).map(([k, v]) => [k, typeof v === 'string' ? v : JSON.stringify(v)]);
  } catch {
    return undefined;
  }
}

/** The keys that most of the lines of JSON have, in the order in which they come first. */
export function commonKeys(lines: readonly LogLine[], limit = 6): string[] {
  const counts = new Map<string, number>();
  let records = 0;
  for (const line of lines.slice(-200)) {
    const found = fieldsOf(line.text);
    if (!found) continue;
    records++;
    for (const [key] of found) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts]
    .filter(([, n]) => n * 2 > records)
    .map(([key]) => key)
    .slice(0, limit);
}
