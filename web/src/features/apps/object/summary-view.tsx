import { useQuery } from '@tanstack/react-query';
import type { Node } from '../../../api/client';
import { ago, exact } from '../../../format/format';
import { number, t } from '../../../texts';
import { Shape, type ShapeName, type Tone } from '../../../ui/shapes';
import { Screen } from '../../../ui/states';
import { type AppKey, appQueries } from '../api';
import { ObjectLinks } from '../declared-links';
import { NodeLinks } from '../links';
import { at, fields, text } from './read';
import { type Condition, type Container, hasLogs, type Row, type Summary, summaryOf } from './summary';

const shapes: Record<Tone, ShapeName> = {
  ok: 'done',
  working: 'progressing',
  attention: 'failed',
  failed: 'degraded',
  paused: 'suspended',
  unknown: 'unknown',
};

/** A word with the shape and the colour of its tone. */
export function Word({ tone, children }: { tone: Tone; children: string }) {
  return (
    <span className="state quiet" data-tone={tone}>
      <Shape name={shapes[tone]} />
      <span className="word">{children}</span>
    </span>
  );
}

interface Props {
  appKey: AppKey;
  node: Node;
  owner: Node | undefined;
  open: (node: Node) => void;
  /** Goes to the logs, of one container or of all. */
  openLogs: (container?: string) => void;
}

/** What matters of an object, by its kind. */
export function ObjectSummary({ appKey, node, owner, open, openLogs }: Props) {
  const live = useQuery(appQueries.live(appKey, node));
  return (
    <Screen query={live}>
      {(object) => {
        const s = summaryOf(object, node.group, node.kind);
        return (
          <div className="object-section">
            {hasLogs(node.group, node.kind) && s.containers.length === 0 && (
              <button type="button" className="as-link" onClick={() => openLogs()}>
                {t('Open the logs of its pods')}
              </button>
            )}
            <Containers items={s.containers} openLogs={openLogs} />
            <Facts rows={s.rows} node={node} live={object} owner={owner} open={open} />
            <ObjectLinks appKey={appKey} node={node} />
            <Keys keys={s.keys} />
            <Conditions items={s.conditions} />
            <Labels live={object} />
          </div>
        );
      }}
    </Screen>
  );
}

interface FactsProps {
  rows: Row[];
  node: Node;
  live: unknown;
  owner: Node | undefined;
  open: (node: Node) => void;
}

function Facts({ rows, node, live, owner, open }: FactsProps) {
  const created = text(live, 'metadata.creationTimestamp') || node.createdAt;
  return (
    <section aria-label={t('About')}>
      <h4>{t('About')}</h4>
      <dl className="facts-list">
        {rows.map((r) => (
          <Fact key={r.label} row={r} />
        ))}
        {node.diff && <Fact row={{ label: t('Differs in'), value: node.diff }} />}
        {owner && (
          <>
            <dt>{t('Owner')}</dt>
            <dd>
              <button type="button" className="as-link" onClick={() => open(owner)}>
                {owner.kind} {owner.name}
              </button>
            </dd>
          </>
        )}
        <dt>{t('Created')}</dt>
        <dd title={exact(created)}>{ago(created, Date.now())}</dd>
        {(node.links?.length ?? 0) > 0 && (
          <>
            <dt>{t('Links')}</dt>
            <dd>
              <NodeLinks node={node} />
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

function Fact({ row }: { row: Row }) {
  return (
    <>
      <dt>{row.label}</dt>
      <dd className={row.mono ? 'mono breakable' : 'breakable'}>
        {row.tone ? <Word tone={row.tone}>{row.value}</Word> : row.value}
      </dd>
    </>
  );
}

function Containers({ items, openLogs }: { items: Container[]; openLogs: (container: string) => void }) {
  if (items.length === 0) return null;
  return (
    <section aria-label={t('Containers')}>
      <h4>{t('Containers')}</h4>
      <table className="plain-table">
        <thead>
          <tr>
            <th>{t('Name')}</th>
            <th>{t('State')}</th>
            <th className="number">{t('Restarts')}</th>
            <th>{t('Last exit')}</th>
          </tr>
        </thead>
        <tbody>
          {items.map((c) => (
            <ContainerRow key={`${c.kind} ${c.name}`} c={c} openLogs={openLogs} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function ContainerRow({ c, openLogs }: { c: Container; openLogs: (container: string) => void }) {
  return (
    <>
      <tr>
        <td>
          <button
            type="button"
            className="as-link"
            onClick={() => openLogs(c.name)}
            title={t('Logs of {{name}}', { name: c.name })}
          >
            {c.name}
          </button>
          {c.kind === 'init' ? ` ${t('init')}` : ''}
        </td>
        <td>
          <Word tone={c.tone}>{c.state}</Word>
        </td>
        <td className="number">{c.restarts}</td>
        <td title={exact(c.lastExitAt || undefined)}>{c.lastExit || t('none')}</td>
      </tr>
      <tr className="second-line">
        <td colSpan={4} className="mono breakable">
          {c.image}
          {c.message && <div className="container-message">{c.message}</div>}
        </td>
      </tr>
    </>
  );
}

function Conditions({ items }: { items: Condition[] }) {
  if (items.length === 0) return null;
  return (
    <section aria-label={t('Conditions')}>
      <h4>{t('Conditions')}</h4>
      <ul className="object-list conditions">
        {items.map((c) => (
          <li key={c.type}>
            <Word tone={c.tone}>{`${c.type}: ${c.status}`}</Word>
            <span className="quiet breakable">
              {[c.reason, c.message].filter(Boolean).join(': ')}
              {c.since && (
                <span title={exact(c.since)}> {t('since {{time}}', { time: ago(c.since, Date.now()) })}</span>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Keys({ keys }: { keys: Summary['keys'] }) {
  if (keys.length === 0) return null;
  return (
    <section aria-label={t('Keys')}>
      <h4>
        {t('Keys')} {keys.length}
      </h4>
      <dl className="facts-list">
        {keys.map((k) => (
          <Fact
            key={k.name}
            row={{ label: k.name, value: k.size === undefined ? t('masked') : t('{{n}} bytes', { n: number(k.size) }) }}
          />
        ))}
      </dl>
    </section>
  );
}

function Labels({ live }: { live: unknown }) {
  const labels = Object.entries(fields(at(live, 'metadata.labels')));
  if (labels.length === 0) return null;
  return (
    <section aria-label={t('Labels')}>
      <h4>
        {t('Labels')} {labels.length}
      </h4>
      <ul className="labels">
        {labels.map(([k, v]) => (
          <li key={k} className="mono breakable">
            {k}={text(v)}
          </li>
        ))}
      </ul>
    </section>
  );
}
