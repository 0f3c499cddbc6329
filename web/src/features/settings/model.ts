import type { KnownSetting, Setting } from '../../api/client';

/** One line of the page: a key that is set, or one that could be. */
export interface Row {
  map: string;
  key: string;
  about: string;
  sample: string;
  used: boolean;
  /** What is stored; absent where nothing is. */
  setting?: Setting;
  /** The key is only the beginning of keys: a kind follows. */
  family: boolean;
}

const named = (known: KnownSetting, map: string, key: string) =>
  known.map === map &&
  (known.key === key || (known.key.endsWith('.') && key.startsWith(known.key) && key.length > known.key.length));

/** Puts together what is set and what can be: known keys first, in the hub's order. */
export function rows(items: readonly Setting[], known: readonly KnownSetting[]): Row[] {
  const out: Row[] = [];
  const placed = new Set<Setting>();
  for (const k of known) {
    const set = items.filter((s) => named(k, s.map, s.key));
    const base = { about: k.about, sample: k.sample, used: k.used };
    for (const s of set) {
      placed.add(s);
      out.push({ ...base, map: s.map, key: s.key, setting: s, family: false });
    }
    const family = k.key.endsWith('.');
    if (family || set.length === 0) out.push({ ...base, map: k.map, key: k.key, family });
  }
  for (const s of items) {
    if (!placed.has(s))
      out.push({ map: s.map, key: s.key, about: '', sample: '', used: s.used, setting: s, family: false });
  }
  return out;
}

/** The first line of a value, and how much more there is. */
export function glimpse(setting: Setting | undefined): string {
  if (!setting) return '';
  if (setting.secret) return 'secret, never shown';
  const lines = (setting.value ?? '').trimEnd().split('\n');
  return lines.length > 1 ? `${lines[0]} … (${lines.length} lines)` : (lines[0] ?? '');
}

/** Whether a row has what a person looks for. */
export function has(row: Row, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return !wanted || `${row.map} ${row.key} ${row.about}`.toLowerCase().includes(wanted);
}
