/** What objects are filtered by, beside part of their name. */
export const filters = ['kind', 'namespace', 'cluster', 'project', 'sync', 'health'] as const;
export type Filter = (typeof filters)[number];

/** What the address of the list says; values of a filter have commas between them. */
export type ObjectSearch = { q?: string } & { [f in Filter]?: string };

/** Reads the address: what is no text, or empty, counts as absent. */
export function objectSearch(search: Record<string, unknown>): ObjectSearch {
  const out: ObjectSearch = {};
  for (const name of ['q', ...filters] as const) {
    const value = search[name];
    if (typeof value === 'string' && value) out[name] = value;
    else if (typeof value === 'number') out[name] = String(value);
  }
  return out;
}

/** The values of a filter; those of states are only what there is. */
export function valuesOf(search: ObjectSearch, filter: Filter): string[] {
  return (search[filter] ?? '').split(',').filter(Boolean);
}

/** How many filters are set. */
export function filtersSet(search: ObjectSearch): number {
  return filters.filter((f) => search[f]).length + (search.q ? 1 : 0);
}
