import { Button } from '@mantine/core';
import { IconTerminal2 } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import type { Node } from '../../api/client';
import { sentence } from '../../api/errors';
import type { components } from '../../api/schema.gen';
import { ago, exact } from '../../format/format';
import { Shape } from '../../ui/shapes';
import { type AppKey, appQueries } from './api';
import './cause.css';
import { t } from '../../texts';
import { nodeOf, referenceOf } from './object/reference';
import { hasLogs } from './object/summary';
import { type AppSearch, changed } from './search';

type Why = components['schemas']['WhyCause'];

/** What other parts of the page say in their own words. */
const elsewhere = new Set(['paused', 'out-of-sync', 'cluster-offline']);

/** What makes the question worth asking: every object that is not well, and what it says. */
export function complaints(nodes: Node[]): string {
  return nodes
    .filter((n) => !n.orphaned && n.health && n.health !== 'Healthy' && n.health !== 'Suspended')
    .map((n) => `${referenceOf(n)} ${n.health} ${n.message ?? ''}`)
    .sort()
    .join('\n');
}

/** Why the application is not well, in one sentence of the hub: which object, why, since when, and what to do. */
export function Cause({ appKey, search, go }: { appKey: AppKey; search: AppSearch; go: (search: AppSearch) => void }) {
  const nodes = useQuery(appQueries.tree(appKey)).data?.nodes ?? [];
  const said = complaints(nodes);
  const why = useQuery(appQueries.why(appKey, said));
  const cause = said ? why.data?.causes.find((c) => !elsewhere.has(c.class)) : undefined;
  if (!cause) return null;
  return <One cause={cause} nodes={nodes} show={(change) => go(changed(search, { log: undefined, ...change }))} />;
}

function One({ cause, nodes, show }: { cause: Why; nodes: Node[]; show: (change: AppSearch) => void }) {
  const waits = cause.class === 'progressing';
  const tone = waits ? 'working' : 'failed';
  const { object } = cause;
  const ref = object && {
    group: object.group ?? '',
    kind: object.kind,
    namespace: object.namespace ?? '',
    name: object.name,
  };
  // What is gone has no panel.
  const node = ref && nodeOf(nodes, ref);
  return (
    <section className="cause" data-tone={tone} aria-label={t('Cause')} aria-live="polite">
      <span className="state" data-tone={tone}>
        <Shape name={waits ? 'progressing' : 'degraded'} size={16} />
      </span>
      <div className="cause-said">
        <p>
          {node ? (
            <button type="button" className="cause-object" onClick={() => show({ object: referenceOf(node) })}>
              {node.kind} {node.name}
            </button>
          ) : (
            ref && (
              <strong>
                {ref.kind} {ref.name}
              </strong>
            )
          )}
          {ref && ': '}
          {cause.title}
          {cause.firstSeen && (
            <span title={exact(cause.firstSeen)}>
              {' '}
              {t('since {{time}}', { time: ago(cause.firstSeen, Date.now()) })}
            </span>
          )}
          {cause.message ? `: ${sentence(cause.message)}` : '.'} {sentence(cause.advice)}
        </p>
        {(cause.lastLines?.length ?? 0) > 0 && (
          <pre
            title={
              cause.container
                ? t('Last lines of {{container}}', { container: cause.container })
                : t('Last lines of its log')
            }
          >
            {cause.lastLines?.slice(-3).join('\n')}
          </pre>
        )}
      </div>
      {node && hasLogs(node.group, node.kind) && (
        <Button
          size="xs"
          variant="default"
          leftSection={<IconTerminal2 size={14} aria-hidden />}
          onClick={() =>
            show({
              object: referenceOf(node),
              panel: 'logs',
              ...(cause.container ? { log: `container=${encodeURIComponent(cause.container)}` } : {}),
            })
          }
        >
          {t('Open its logs')}
        </Button>
      )}
    </section>
  );
}
