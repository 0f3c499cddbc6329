import type { ReactNode } from 'react';

/** What a state means for whoever looks at it; a colour stands for each. */
export type Tone = 'ok' | 'working' | 'attention' | 'failed' | 'paused' | 'unknown';

/**
 * The shapes of states. They differ without their colours: health is filled,
 * drift is drawn, operations are signs, connections are plugs.
 */
const filled: Record<string, ReactNode> = {
  healthy: (
    <>
      <circle cx="12" cy="12" r="10" />
      <path className="cut" d="M7.5 12.5l3 3 6-6.5" />
    </>
  ),
  degraded: (
    <>
      <path d="M8 2h8l6 6v8l-6 6H8l-6-6V8z" />
      <path className="cut" d="M8.5 8.5l7 7M15.5 8.5l-7 7" />
    </>
  ),
  suspended: (
    <>
      <circle cx="12" cy="12" r="10" />
      <path className="cut" d="M9.5 8v8M14.5 8v8" />
    </>
  ),
  unknown: (
    <>
      <circle cx="12" cy="12" r="10" />
      <path className="cut" d="M9.7 9.3a2.4 2.4 0 1 1 3.4 2.3c-.8.4-1.1.9-1.1 1.7M12 16.8h.01" />
    </>
  ),
  failed: (
    <>
      <path d="M12 2.5L23 21.5H1z" />
      <path className="cut" d="M12 9.5v5M12 18h.01" />
    </>
  ),
};

const drawn: Record<string, ReactNode> = {
  progressing: (
    <>
      <circle cx="12" cy="12" r="9" />
      <path d="M12 6.5a5.5 5.5 0 0 1 0 11z" fill="currentColor" stroke="none" />
    </>
  ),
  missing: <circle cx="12" cy="12" r="9" strokeDasharray="4.6 3.4" />,
  equal: <path d="M5 9.5h14M5 14.5h14" />,
  different: <path d="M5 9.5h14M5 14.5h14M16 5L8 19" />,
  absent: <rect x="5" y="5" width="14" height="14" rx="2" strokeDasharray="3.5 3" />,
  running: <path d="M12 3.5a8.5 8.5 0 1 1-8.5 8.5" />,
  waiting: <path d="M7 4h10M7 20h10M8 4v3c0 3 4 4 4 5s-4 2-4 5v3M16 4v3c0 3-4 4-4 5s4 2 4 5v3" />,
  done: <path d="M5 12.5l4.5 4.5L19 7" />,
  hand: <path d="M12 7v5l3 2M12 3.5a8.5 8.5 0 1 0 .01 0z" />,
  plug: <path d="M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4" />,
  shield: <path d="M12 3l7.5 3v5.5c0 4.6-3.1 8-7.5 9.5-4.4-1.5-7.5-4.9-7.5-9.5V6z" />,
  barred: <path d="M6 6l12 12M18 6L6 18" />,
  leaving: <path d="M6 7h12M10 7V4.5h4V7M8 7l1 13h6l1-13" />,
  away: (
    <path d="M4 20l3-3M17 7l3-3M7 17a4 4 0 0 1 0-5.6L9 9.5l5.5 5.5-1.9 2a4 4 0 0 1-5.6 0zM17 7a4 4 0 0 1 0 5.6l-1 1" />
  ),
};

export type ShapeName =
  | 'healthy'
  | 'degraded'
  | 'suspended'
  | 'unknown'
  | 'failed'
  | 'progressing'
  | 'missing'
  | 'equal'
  | 'different'
  | 'absent'
  | 'running'
  | 'waiting'
  | 'done'
  | 'hand'
  | 'leaving'
  | 'away'
  | 'plug'
  | 'shield'
  | 'barred';

/** One shape, in the colour of what it stands in. */
export function Shape({ name, size = 14 }: { name: ShapeName; size?: number }) {
  const solid = filled[name];
  return solid ? (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="currentColor" aria-hidden>
      {solid}
    </svg>
  ) : (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth={2.2}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
    >
      {drawn[name]}
    </svg>
  );
}

/** The mark of Capstan: a capstan from above, a ring with eight bars. */
export function Mark({ size = 20 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth={2.1} aria-hidden>
      <circle cx="12" cy="12" r="5.7" />
      {[22.5, 67.5, 112.5, 157.5, 202.5, 247.5, 292.5, 337.5].map((turn) => (
        <path key={turn} d="M12 6V.8" transform={`rotate(${turn} 12 12)`} />
      ))}
      <circle cx="12" cy="12" r="1.9" fill="currentColor" stroke="none" />
    </svg>
  );
}

/** The mark with the name of the product, above pages that have no frame. */
export function Brand() {
  return (
    <div className="brand">
      <Mark size={24} />
      Capstan
    </div>
  );
}
