/** An object of Kubernetes, as the API returns it: anything may be missing, or of another type. */
export type Fields = Readonly<Record<string, unknown>>;

/** A value as a map; one that is none is empty. */
export function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value))
    : {};
}

/** What stands at a path of keys, such as spec.replicas. */
export function at(value: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((v, key) => fields(v)[key], value);
}

/** The list at a path; something else counts as an empty one. */
export function list(value: unknown, path: string): unknown[] {
  const found = path ? at(value, path) : value;
  return Array.isArray(found) ? found : [];
}

/** The text, number or truth at a path as text; something else is empty. */
export function text(value: unknown, path = ''): string {
  const found = path ? at(value, path) : value;
  return ['string', 'number', 'boolean'].includes(typeof found) ? String(found) : '';
}

/** The number at a path, or another one. */
export function number(value: unknown, path: string, otherwise = 0): number {
  const found = at(value, path);
  return typeof found === 'number' ? found : otherwise;
}
