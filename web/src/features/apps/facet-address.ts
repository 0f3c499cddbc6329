import { type Facet, type Facets, facets } from './grouping';

/** What the parameter `resource` of an address says: filters, and part of a name. */
export interface Chosen {
  facets: Facets;
  name: string;
}

/** Reads a filter of objects as addresses have it, such as `kind:Pod,kind:Service,health:Degraded`. */
export function readResource(text: string | undefined): Chosen {
  const out: Partial<Record<Facet, string[]>> = {};
  let name = '';
  for (const term of (text ?? '').split(',')) {
    const at = term.indexOf(':');
    const [field, value] = [term.slice(0, at), term.slice(at + 1)];
    if (at < 1 || !value) continue;
    if (field === 'name') name = value;
    const facet = facets.find((f) => f === field);
    if (facet) out[facet] = [...(out[facet] ?? []), value];
  }
  return { facets: out, name };
}

/** Writes filters as readResource reads them; empty: there are none. */
export function writeFacets(set: Facets): string {
  return facets.flatMap((f) => (set[f] ?? []).map((value) => `${f}:${value}`)).join(',');
}
