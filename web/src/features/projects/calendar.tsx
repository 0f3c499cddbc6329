import { Text } from '@mantine/core';
import type { SyncWindow } from '../../api/windows';
import { language, t } from '../../texts';
import { clock, concerns } from '../../ui/sync-windows';
import './projects.css';

const week = 7 * 86_400_000;
const dayOf = new Intl.DateTimeFormat(language === 'en' ? 'en-GB' : language, { weekday: 'short', day: 'numeric' });

/** When the windows of a project open and close within the next week, on one line each. */
export function Calendar({ windows }: { windows: SyncWindow[] }) {
  const now = Date.now();
  const days = Array.from({ length: 7 }, (_, i) => new Date(now + i * 86_400_000));
  return (
    <section aria-label={t('The next seven days')}>
      <div className="calendar">
        <div className="days" aria-hidden>
          {days.map((d) => (
            <span key={d.toISOString()}>{dayOf.format(d)}</span>
          ))}
        </div>
        {windows.map((w, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a window has no name but its place
          <Line key={i} window={w} now={now} />
        ))}
      </div>
    </section>
  );
}

function Line({ window: w, now }: { window: SyncWindow; now: number }) {
  const span = spanOf(w, now);
  const what = concerns(w);
  const said = w.kind === 'deny' ? t('Closed for {{what}}', { what }) : t('Open for {{what}}', { what });
  return (
    <div className="line">
      <svg viewBox="0 0 700 20" preserveAspectRatio="none" role="img" aria-label={said} data-kind={w.kind}>
        <title>{said}</title>
        {span && <rect x={span.from} y="2" width={Math.max(4, span.to - span.from)} height="16" rx="3" />}
      </svg>
      <Text size="xs" c="dimmed">
        {span ? change(w, said) : t('{{window}}: not within a week', { window: said })}
      </Text>
    </div>
  );
}

/** What a window does, with when it changes next. */
function change(w: SyncWindow, window: string): string {
  if (!w.active) return t('{{window}}, from {{time}}', { window, time: clock(w.opens, w.timeZone) });
  const time = clock(w.closes, w.timeZone);
  return time ? t('{{window}}, until {{time}}', { window, time }) : t('{{window}}, until further notice', { window });
}

/** Where a window stands on a line of 700 units for a week; undefined: not within it. */
export function spanOf(w: SyncWindow, now: number): { from: number; to: number } | undefined {
  const place = (at: string | undefined, none: number) =>
    at ? Math.min(700, Math.max(0, ((Date.parse(at) - now) / week) * 700)) : none;
  if (w.active) return { from: 0, to: place(w.closes, 700) };
  if (!w.opens || Date.parse(w.opens) - now > week) return undefined;
  const from = place(w.opens, 0);
  const hours = /(\d+)h/.exec(w.duration)?.[1];
  const minutes = /(\d+)m/.exec(w.duration)?.[1];
  const length = (Number(hours ?? 0) * 3_600_000 + Number(minutes ?? 0) * 60_000) / week;
  return { from, to: Math.min(700, from + length * 700) };
}
