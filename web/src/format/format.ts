import { language, t } from '../texts';

/** The language of dates, with its region where that matters. */
export const dateLanguage = language === 'en' ? 'en-GB' : language;

/** The first characters of a commit, as people quote it. */
export function shortRevision(revision: string | undefined): string {
  return revision ? revision.slice(0, 8) : '–';
}

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

// Making a format takes longer than using it, and lists use these in each row.
const relative = new Intl.RelativeTimeFormat(language, { numeric: 'always', style: 'short' });
const absolute = new Intl.DateTimeFormat(dateLanguage, {
  year: 'numeric',
  month: 'numeric',
  day: 'numeric',
  hour: 'numeric',
  minute: 'numeric',
  second: 'numeric',
  timeZoneName: 'short',
});

/** How long ago something was, in the largest whole unit. */
export function ago(at: string | undefined, now: number): string {
  if (!at) return t('never');
  const seconds = Math.round((now - Date.parse(at)) / 1000);
  if (seconds < 5) return t('now');
  for (const [unit, size] of units) {
    if (seconds >= size) return relative.format(-Math.floor(seconds / size), unit);
  }
  return t('now');
}

/** An absolute time with its zone, for a hover. */
export function exact(at: string | undefined): string {
  const time = Date.parse(at ?? '');
  return Number.isNaN(time) ? '' : absolute.format(time);
}

/** How long something took, in its two largest units; empty: it is not known. */
export function took(from: string | undefined, to: string | undefined): string {
  const seconds = Math.round((Date.parse(to ?? '') - Date.parse(from ?? '')) / 1000);
  if (!Number.isFinite(seconds) || seconds < 0) return '';
  if (seconds < 60) return t('{{s}} s', { s: seconds });
  if (seconds < 3600) return t('{{min}} min {{s}} s', { min: Math.floor(seconds / 60), s: seconds % 60 });
  return t('{{h}} h {{min}} min', { h: Math.floor(seconds / 3600), min: Math.floor((seconds % 3600) / 60) });
}
