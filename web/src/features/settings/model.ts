import type { KnownSetting, Setting } from '../../api/client';
import { t } from '../../texts';

/** One line of the page: a key that is set, or one that could be. */
export interface Row {
  map: string;
  key: string;
  about: string;
  sample: string;
  used: boolean;
  /** What is stored; absent where nothing is. */
  setting?: Setting;
  /** The key is only the beginning of keys: what `rest` says follows. */
  family: boolean;
  rest: Rest;
}

/** What a person writes behind the beginning of a key. */
export interface Rest {
  label: string;
  short: string;
  /** That there can be many keys. */
  each: string;
  description: string;
  example: string;
}

const kinds: Rest = {
  label: t('Kind'),
  short: 'group_Kind',
  each: t('One per kind'),
  description: t('group_Kind, or Kind alone for the core group'),
  example: 'cert-manager.io_Certificate',
};
const versions: Rest = {
  label: t('Version'),
  short: t('version'),
  each: t('One per version'),
  description: t('As sources name it in kustomize.version'),
  example: 'v5.4.1',
};
const hosts: Rest = {
  label: t('Host'),
  short: t('host'),
  each: t('One per host'),
  description: t('The name of the server, without a port'),
  example: 'git.example.com',
};

/** The key that stands for all keys of a map. */
const anyKey = '*';

const publicKeys: Rest = {
  label: t('Key'),
  short: t('key ID'),
  each: t('One per key'),
  description: t('The ID of the public key'),
  example: '4AEE18F83AFDEB23',
};

const restOf = (map: string, key: string): Rest => {
  if (key === anyKey) return map === 'argocd-gpg-keys-cm' ? publicKeys : hosts;
  return key.startsWith('kustomize.') ? versions : kinds;
};

const named = (known: KnownSetting, map: string, key: string) =>
  known.map === map &&
  (known.key === key ||
    known.key === anyKey ||
    (known.key.endsWith('.') && key.startsWith(known.key) && key.length > known.key.length));

/** Puts together what is set and what can be: known keys first, in the hub's order. */
export function rows(items: readonly Setting[], known: readonly KnownSetting[]): Row[] {
  const out: Row[] = [];
  const placed = new Set<Setting>();
  for (const k of known) {
    const set = items.filter((s) => named(k, s.map, s.key));
    const base = { about: k.about, sample: k.sample, used: k.used, rest: restOf(k.map, k.key) };
    for (const s of set) {
      placed.add(s);
      out.push({ ...base, map: s.map, key: s.key, setting: s, family: false });
    }
    const family = k.key === anyKey || k.key.endsWith('.');
    if (family || set.length === 0) out.push({ ...base, map: k.map, key: k.key === anyKey ? '' : k.key, family });
  }
  for (const s of items) {
    if (!placed.has(s))
      out.push({ map: s.map, key: s.key, about: '', sample: '', used: s.used, setting: s, family: false, rest: kinds });
  }
  return out;
}

/** The first line of a value, and how much more there is. */
export function glimpse(setting: Setting | undefined): string {
  if (!setting) return '';
  if (setting.secret) return t('secret, never shown');
  const lines = (setting.value ?? '').trimEnd().split('\n');
  const first = lines[0] ?? '';
  return lines.length > 1 ? t('{{first}} … ({{lines}} lines)', { first, lines: lines.length }) : first;
}

/** Whether a row has what a person looks for. */
export function has(row: Row, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return !wanted || `${row.map} ${row.key} ${row.about}`.toLowerCase().includes(wanted);
}
