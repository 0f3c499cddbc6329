/**
 * The query of the list as a text that is changed by parts. The hub reads it
 * (shared/appquery) and says what is wrong; here only its words are told apart.
 */
export interface Term {
  not: boolean;
  /** Empty: a part of the name. */
  field: string;
  /** Of a label or an annotation. */
  key: string;
  values: string[];
  pattern: boolean;
  text: string;
}

const aliases: Record<string, string> = {
  drift: 'sync',
  set: 'owner',
  ns: 'namespace',
  repository: 'repo',
  rev: 'revision',
  op: 'operation',
};

const keyed = ['label', 'annotation'];
const states = ['sync', 'health', 'operation', 'auto', 'state'];

/** The fields of a query. */
export const fields = [
  'name',
  'project',
  'cluster',
  'namespace',
  'app-namespace',
  'sync',
  'health',
  'operation',
  'auto',
  'state',
  'repo',
  'revision',
  'label',
  'annotation',
  'owner',
  'author',
  'by',
] as const;

/** The terms of a query, as they are written. */
export function terms(query: string): Term[] {
  return (query.match(/(?:"(?:\\.|[^"\\])*"?|[^\s"])+/g) ?? []).map(term);
}

function term(text: string): Term {
  const not = text.startsWith('-') && text.length > 1;
  const found = /^([a-z-]+)([:~])([\s\S]*)$/i.exec(not ? text.slice(1) : text);
  if (!found) return { not, field: '', key: '', values: [unquoted(not ? text.slice(1) : text)], pattern: false, text };
  const name = (found[1] ?? '').toLowerCase();
  const field = aliases[name] ?? name;
  const pattern = found[2] === '~';
  let rest = found[3] ?? '';
  let key = '';
  if (keyed.includes(field)) {
    const at = rest.indexOf('=');
    key = unquoted(at < 0 ? rest : rest.slice(0, at));
    if (at < 0) return { not, field, key, values: [], pattern, text };
    rest = rest.slice(at + 1);
  }
  const values = pattern ? [unquoted(rest)] : divided(rest).map((v) => plain(field, v));
  return { not, field, key, values, pattern, text };
}

/** Values with commas between them, which do not count in quotes. */
function divided(text: string): string[] {
  const out = [''];
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i] ?? '';
    if (quoted && c === '\\') {
      out[out.length - 1] += c + (text[++i] ?? '');
      continue;
    }
    if (c === '"') quoted = !quoted;
    if (c === ',' && !quoted) out.push('');
    else out[out.length - 1] += c;
  }
  return out;
}

const plain = (field: string, value: string) => {
  const v = unquoted(value);
  if (!states.includes(field)) return v;
  const word = v.toLowerCase().replace(/[-_ ]/g, '');
  return field === 'sync' && word === 'drifted' ? 'outofsync' : word;
};

const unquoted = (text: string) =>
  text.startsWith('"') ? text.replace(/^"|"$/g, '').replace(/\\(["\\])/g, '$1') : text;

/** A value as a query has it. */
export function quoted(value: string): string {
  return value === '' || /[\s",*]/.test(value) ? `"${value.replace(/(["\\])/g, '\\$1')}"` : value;
}

/** A word that is a part of the name, whatever is in it. */
export const partOfName = (word: string) => `"${word.replace(/(["\\])/g, '\\$1')}"`;

/** What the list can be narrowed by: a field, or label:KEY for the values of a label. */
const parts = (facet: string): [field: string, key: string] => {
  const at = facet.indexOf(':');
  return at < 0 ? [facet, ''] : [facet.slice(0, at), facet.slice(at + 1)];
};

/** Whether a term names values of a facet. Keys of labels are the facet `label`. */
const about = (t: Term, facet: string) => {
  const [field, key] = parts(facet);
  return !t.pattern && t.field === field && (field === 'label' && key === '' ? t.values.length === 0 : t.key === key);
};

const valuesOf = (t: Term, facet: string) => (facet === 'label' ? [t.key] : t.values);

/** The values of a facet that a query asks for, or excludes. */
export function chosen(query: string, facet: string, not = false): string[] {
  return terms(query)
    .filter((t) => t.not === not && about(t, facet))
    .flatMap((t) => valuesOf(t, facet));
}

const written = (facet: string, values: string[], not: boolean) => {
  const [field, key] = parts(facet);
  const sign = not ? '-' : '';
  if (facet === 'label') return values.map((v) => `${sign}label:${quoted(v)}`).join(' ');
  return `${sign}${field}:${key ? `${quoted(key)}=` : ''}${values.map(quoted).join(',')}`;
};

/** The query with one value of a facet more or less; with not, one that is excluded. */
export function toggled(query: string, facet: string, value: string, not = false): string {
  const all = terms(query);
  const here = chosen(query, facet, not);
  const kept = all.filter((t) => !(t.not === not && about(t, facet)));
  const others = kept.filter((t) => !(t.not !== not && about(t, facet) && valuesOf(t, facet).includes(value)));
  const next = here.includes(value) ? here.filter((v) => v !== value) : [...here, value];
  const rest = others.map((t) => t.text);
  return [...rest, ...(next.length > 0 ? [written(facet, next, not)] : [])].join(' ');
}

/** The query with these values of a facet and no others. */
export function only(query: string, facet: string, values: string[]): string {
  const rest = terms(query)
    .filter((t) => !about(t, facet))
    .map((t) => t.text);
  return [...rest, ...(values.length > 0 ? [written(facet, values, false)] : [])].join(' ');
}

/** Whether the name is looked for by a regular expression. */
export function byPattern(query: string): boolean {
  return terms(query).some((t) => t.field === 'name' && t.pattern);
}

/** The query with words that are parts of the name as one regular expression, or the other way. */
export function patternToggled(query: string): string {
  const all = terms(query);
  if (byPattern(query)) {
    return all.map((t) => (t.field === 'name' && t.pattern && !t.not ? quoted(t.values[0] ?? '') : t.text)).join(' ');
  }
  const words = all.filter((t) => t.field === '' && !t.not).map((t) => t.values[0] ?? '');
  const rest = all.filter((t) => t.field !== '' || t.not).map((t) => t.text);
  const expression = words.join('.*');
  return [...rest, `name~${expression === '' ? '.' : quotedPattern(expression)}`].join(' ');
}

const quotedPattern = (text: string) => (/[\s"]/.test(text) ? `"${text.replace(/(["\\])/g, '\\$1')}"` : text);
