import { fromArgo } from './argo-address';

/** What the address of an application's page says besides its name. All of it is optional. */
export interface AppSearch {
  tab?: string;
  view?: string;
  /** What the tree or list is searched for. */
  find?: string;
  /** `yes`: only objects with problems. */
  problems?: string;
  /** Filters of the objects; see facet-address. */
  resource?: string;
  /** The object whose panel is open, as group/kind/namespace/name. */
  object?: string;
  /** The tab of that panel. */
  panel?: string;
  /** `yes`: the panel takes the whole page. */
  full?: string;
  /** How the log is read and shown; see logs/options. */
  log?: string;
  /** What is open above the page, such as `sync`. */
  open?: string;
  /** The object that the diff is at. */
  change?: string;
  /** How the diff is shown: `unified`. */
  mode?: string;
  /** What of the settings a narrow screen shows: `yaml`. */
  show?: string;
  /** `yes`: the diff has fields that Git does not set, too. */
  whole?: string;
}

const names = [
  'tab',
  'view',
  'find',
  'problems',
  'resource',
  'object',
  'panel',
  'full',
  'log',
  'open',
  'change',
  'mode',
  'whole',
  'show',
] as const satisfies (keyof AppSearch)[];

/** Reads the address, ours or Argo CD's: what is no text, or empty, counts as absent. */
export function appSearch(address: Record<string, unknown>): AppSearch {
  const search = fromArgo(address);
  const out: AppSearch = {};
  for (const name of names) {
    const value = search[name];
    if (typeof value === 'string' && value) out[name] = value;
    else if (typeof value === 'number') out[name] = String(value);
  }
  return out;
}

/** The address with some of it changed; what becomes undefined or empty goes. */
export function changed(search: AppSearch, to: { [name in keyof AppSearch]: AppSearch[name] | undefined }): AppSearch {
  return appSearch({ ...search, ...to });
}
