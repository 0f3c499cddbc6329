import { language, t } from '../../texts';
import type { ShapeName, Tone } from '../../ui/shapes';
import type { AuditRecord } from './api';

/** The records of one day. */
export interface Day {
  day: string;
  records: AuditRecord[];
}

const locale = language === 'en' ? 'en-GB' : language;

/** The time of a day, in the browser's zone. */
export const timeOfDay = (at: string) => new Date(at).toLocaleTimeString(locale);

/** Divides records, newest first, by the days of the browser's time zone. */
export function byDay(records: AuditRecord[]): Day[] {
  const days: Day[] = [];
  for (const record of records) {
    const day = new Date(record.at).toLocaleDateString(locale, {
      weekday: 'long',
      day: 'numeric',
      month: 'long',
      year: 'numeric',
    });
    const last = days.at(-1);
    if (last?.day === day) last.records.push(record);
    else days.push({ day, records: [record] });
  }
  return days;
}

/** How a result looks; what was allowed says nothing by itself. */
export function resultLook(result: string): { label: string; tone: Tone; shape: ShapeName } {
  switch (result) {
    case 'allowed':
      return { label: t('Allowed'), tone: 'ok', shape: 'done' };
    case 'denied':
      return { label: t('Denied'), tone: 'attention', shape: 'hand' };
    case 'failed':
      return { label: t('Failed'), tone: 'failed', shape: 'failed' };
    default:
      return { label: result, tone: 'unknown', shape: 'unknown' };
  }
}
