import { fields } from './read';

/**
 * The JSON merge patch (RFC 7386) that makes one object of another; undefined:
 * they are equal. Lists are replaced as a whole.
 */
export function mergePatch(from: unknown, to: unknown): unknown {
  if (!isMap(from) || !isMap(to)) return equal(from, to) ? undefined : to;
  const before = fields(from);
  const after = fields(to);
  const out: Record<string, unknown> = {};
  for (const key of Object.keys(before)) if (!(key in after)) out[key] = null;
  for (const [key, value] of Object.entries(after)) {
    if (!(key in before)) {
      out[key] = value;
      continue;
    }
    const change = mergePatch(before[key], value);
    if (change !== undefined) out[key] = change;
  }
  return Object.keys(out).length === 0 ? undefined : out;
}

function isMap(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether two values of JSON are equal; the order of keys does not count. */
export function equal(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, i) => equal(v, b[i]));
  if (isMap(a) && isMap(b)) {
    const left = fields(a);
    const right = fields(b);
    const keys = Object.keys(left);
    return keys.length === Object.keys(right).length && keys.every((k) => k in right && equal(left[k], right[k]));
  }
  return a === b;
}
