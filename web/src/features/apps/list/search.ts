import { quoted } from './terms';

/** What the address of the list says. All of it is optional. */
export interface ListSearch {
  /** The query, in the grammar of the hub. */
  q?: string;
  /** What the hub sorts by; `-` before it is the other direction. */
  sort?: string;
  view?: 'tiles' | 'summary';
  /** `yes`: only favourites. */
  fav?: 'yes';
  /** The id of the bulk request whose progress is shown. */
  bulk?: string;
}

/** Parameters of older addresses and of those of Argo CD, with the fields that say the same. */
const former: Record<string, string> = {
  proj: 'project',
  project: 'project',
  sync: 'sync',
  health: 'health',
  cluster: 'cluster',
  namespace: 'namespace',
  repo: 'repo',
  repos: 'repo',
  targetRevision: 'revision',
  operation: 'operation',
  owner: 'owner',
};

const text = (value: unknown) =>
  typeof value === 'string' ? value : typeof value === 'number' || typeof value === 'boolean' ? String(value) : '';

const listed = (value: unknown) =>
  text(value)
    .split(',')
    .map((v) => decoded(v).trim())
    .filter(Boolean);

const decoded = (value: string) => {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
};

/** Reads the address: what is no part of it counts as absent. */
export function listSearch(search: Record<string, unknown>): ListSearch {
  const out: ListSearch = {};
  const q = text(search['q']);
  if (q) out.q = q;
  const sort = text(search['sort']);
  if (/^-?[a-z]+$/.test(sort)) out.sort = sort;
  if (search['view'] === 'tiles' || search['view'] === 'summary') out.view = search['view'];
  if (search['fav'] === 'yes') out.fav = 'yes';
  const bulk = text(search['bulk']);
  if (/^[0-9a-f-]{36}$/.test(bulk)) out.bulk = bulk;
  return out;
}

const others = ['search', 'labels', 'annotations', 'autoSync', 'showFavorites'];

/** The address with filters of older addresses and of Argo CD's list as the query; undefined: it has none. */
export function translated(search: Record<string, unknown>): ListSearch | undefined {
  if (![...Object.keys(former), ...others].some((name) => text(search[name]) !== '')) return undefined;
  const words = [text(search['q']), text(search['search'])];
  for (const [name, field] of Object.entries(former)) {
    const values = listed(search[name]);
    if (values.length > 0) words.push(`${field}:${values.map(quoted).join(',')}`);
  }
  for (const label of listed(search['labels'])) words.push(`label:${label}`);
  for (const one of listed(search['annotations'])) words.push(`annotation:${one}`);
  const auto = listed(search['autoSync']).map((v) => (v.toLowerCase() === 'enabled' ? 'auto' : 'manual,paused'));
  if (auto.length === 1) words.push(`auto:${auto[0]}`);
  const out = listSearch({ ...search, q: words.filter((w) => w.trim()).join(' ') });
  if (text(search['showFavorites']) === 'true') out.fav = 'yes';
  return out;
}
