import type { UseQueryResult } from '@tanstack/react-query';
import type { KubernetesEvent } from '../../../api/client';
import { ago, exact } from '../../../format/format';
import { t } from '../../../texts';
import { Shape } from '../../../ui/shapes';
import { Nothing, Screen } from '../../../ui/states';

/** Warnings first, and of each the newest first. */
export function warningsFirst(events: KubernetesEvent[]): KubernetesEvent[] {
  const at = (e: KubernetesEvent) => Date.parse(e.lastSeen ?? e.firstSeen ?? '') || 0;
  const rank = (e: KubernetesEvent) => Number(e.type === 'Warning');
  return [...events].sort((a, b) => rank(b) - rank(a) || at(b) - at(a));
}

/** What the cluster reports about objects. */
export function ObjectEvents({
  query,
  objects = false,
}: {
  query: UseQueryResult<KubernetesEvent[]>;
  objects?: boolean;
}) {
  return (
    <Screen
      query={query}
      empty={(e) =>
        e.length === 0 ? (
          <Nothing title={t('No events.')}>
            {t('A cluster keeps events for an hour, unless it is set up otherwise.')}
          </Nothing>
        ) : undefined
      }
    >
      {(events) => (
        <ul className="event-list" aria-label={t('Events, warnings first')}>
          {warningsFirst(events).map((e) => (
            <Event
              key={[e.kind, e.namespace, e.name, e.reason, e.message, e.firstSeen].join(' ')}
              event={e}
              objects={objects}
            />
          ))}
        </ul>
      )}
    </Screen>
  );
}

function Event({ event: e, objects }: { event: KubernetesEvent; objects: boolean }) {
  const warning = e.type === 'Warning';
  return (
    <li data-warning={warning}>
      <span className="state quiet" data-tone={warning ? 'attention' : 'unknown'}>
        <Shape name={warning ? 'failed' : 'done'} />
        <span className="word">{e.reason}</span>
      </span>
      <div className="event-text">
        {objects && (
          <span className="quiet">
            {e.kind} {e.name}:{' '}
          </span>
        )}
        {e.message}
        <span className="quiet">{e.source ? `, ${e.source}` : ''}</span>
      </div>
      <span className="quiet event-age" title={exact(e.lastSeen ?? e.firstSeen)}>
        {ago(e.lastSeen ?? e.firstSeen, Date.now())}
        {e.count > 1 ? `, ${t('{{n}} times', { n: e.count })}` : ''}
      </span>
    </li>
  );
}
