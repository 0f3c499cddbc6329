import { equal } from '../object/patch';
import { fields } from '../object/read';

/** A change of one field between two states of an application; undefined: it is absent. */
export interface Change {
  path: readonly string[];
  before: unknown;
  after: unknown;
}

const isMap = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What differs between two states, field by field. Lists count as one field. */
export function changesOf(before: unknown, after: unknown, path: readonly string[] = []): Change[] {
  if (equal(before, after)) return [];
  if (!isMap(before) || !isMap(after)) return [{ path, before, after }];
  const [a, b] = [fields(before), fields(after)];
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].flatMap((key) =>
    changesOf(a[key], b[key], [...path, key]),
  );
}

/** A field that two people have changed to different values. */
export interface Conflict {
  path: readonly string[];
  mine: unknown;
  theirs: unknown;
}

export interface Merged {
  /** The state of the others with my changes, where they do not conflict. */
  value: unknown;
  conflicts: Conflict[];
}

const within = (outer: readonly string[], inner: readonly string[]) => outer.every((key, i) => key === inner[i]);

/** What two people made of the same state, as one. Of a conflict the others' side stands until a person decides. */
export function merge(base: unknown, mine: unknown, theirs: unknown): Merged {
  const my = changesOf(base, mine);
  const their = changesOf(base, theirs);
  const conflicts: Conflict[] = [];
  let value = theirs;
  for (const c of my) {
    const against = their.filter((t) => within(t.path, c.path) || within(c.path, t.path));
    const outer = against.reduce((p, t) => (t.path.length < p.length ? t.path : p), c.path);
    const [m, t] = [valueAtKeys(mine, outer), valueAtKeys(theirs, outer)];
    if (against.length === 0) value = withValue(value, c.path, c.after);
    else if (!equal(m, t) && !conflicts.some((x) => equal(x.path, outer))) {
      conflicts.push({ path: outer, mine: m, theirs: t });
    }
  }
  return { value, conflicts };
}

function valueAtKeys(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((v, key) => fields(v)[key], value);
}

/** A state with one field changed; undefined removes it. */
export function withValue(value: unknown, path: readonly string[], to: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return to;
  const { [key]: held, ...others } = fields(value);
  const next = rest.length > 0 ? withValue(held, rest, to) : to;
  if (next === undefined) return others;
  return Object.fromEntries(
    key in fields(value)
      ? Object.entries(fields(value)).map(([k, v]) => [k, k === key ? next : v])
      : [...Object.entries(others), [key, next]],
  );
}
