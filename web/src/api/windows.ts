import type { components } from './schema.gen';

export type SyncWindow = components['schemas']['SyncWindow'];
export type ApplicationWindows = components['schemas']['ApplicationWindows'];

/** The time until the first of some moments, a little later than it; a minute at least once a quarter of an hour. */
export function untilNext(moments: (string | undefined)[], now: number): number {
  const next = moments.map((m) => (m ? Date.parse(m) - now : Number.NaN)).filter((d) => d > 0);
  return Math.max(1000, Math.min(15 * 60_000, ...next.map((d) => d + 500)));
}
