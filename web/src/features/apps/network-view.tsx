import { VisuallyHidden } from '@mantine/core';
import { type KeyboardEvent, useMemo, useRef } from 'react';
import type { Node } from '../../api/client';
import { t } from '../../texts';
import { HealthBadge } from '../../ui/badges';
import { Nothing } from '../../ui/states';
import { nodeId } from './model';
import { type Network, neighbour, networkOf, type Stop } from './network';
import './network.css';

/** The size of a stop and the space between two, in pixels. */
const size = { width: 230, height: 48, gapX: 70, gapY: 12 };
const left = (s: Stop) => s.column * (size.width + size.gapX);
const top = (s: Stop) => s.row * (size.height + size.gapY);

/** How traffic reaches the pods of an application. Arrow keys follow it. */
export function NetworkView(props: { nodes: Node[]; open: (node: Node) => void; selected: string; stale: boolean }) {
  const { nodes, open, selected, stale } = props;
  const network = useMemo(() => networkOf(nodes), [nodes]);
  const box = useRef<HTMLDivElement>(null);
  if (network.stops.length === 0) return <Nothing title={t('Nothing leads traffic to the application.')} />;
  const move = (e: KeyboardEvent) => {
    const from = document.activeElement?.getAttribute('data-stop') ?? '';
    const to = neighbour(network, from, e.key);
    if (to === undefined) return;
    e.preventDefault();
    box.current?.querySelector<HTMLElement>(`[data-stop="${CSS.escape(to)}"]`)?.focus();
  };
  const width = network.columns * (size.width + size.gapX) - size.gapX;
  const height = network.rows * (size.height + size.gapY) - size.gapY;
  const byId = new Map(network.stops.map((s) => [s.id, s]));
  return (
    // biome-ignore lint/a11y/useSemanticElements: a group of buttons that arrow keys walk
    <div className="network" role="group" aria-label={t('Ways of traffic')} ref={box} onKeyDown={move}>
      <div style={{ width, height }}>
        <svg width={width} height={height} aria-hidden>
          {network.ways.map((w) => {
            const [a, b] = [byId.get(w.from), byId.get(w.to)];
            return a && b ? <path key={`${w.from} ${w.to}`} d={curve(a, b)} data-problem={b.problem} /> : null;
          })}
        </svg>
        {[...network.stops]
          .sort((a, b) => a.column - b.column || a.row - b.row)
          .map((s) => (
            <StopBox
              key={s.id}
              stop={s}
              network={network}
              open={open}
              selected={s.node !== undefined && nodeId(s.node) === selected}
              stale={stale}
            />
          ))}
      </div>
    </div>
  );
}

function curve(a: Stop, b: Stop): string {
  const [x1, y1] = [left(a) + size.width, top(a) + size.height / 2];
  const [x2, y2] = [left(b), top(b) + size.height / 2];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

/** Where traffic to a stop comes from and goes to, for who hears what others see as lines. */
export function spoken(stop: Stop, network: Network): string {
  const names = (ids: string[]) => ids.map((id) => network.stops.find((s) => s.id === id)?.title ?? '').join(', ');
  const from = names(network.ways.filter((w) => w.to === stop.id).map((w) => w.from));
  const to = names(network.ways.filter((w) => w.from === stop.id).map((w) => w.to));
  return [
    from && t('from {{names}}', { names: from }),
    to ? t('to {{names}}', { names: to }) : stop.layer === 'service' ? t('to no pod') : '',
  ]
    .filter(Boolean)
    .join('; ');
}

function StopBox(props: {
  stop: Stop;
  network: Network;
  open: (node: Node) => void;
  selected: boolean;
  stale: boolean;
}) {
  const { stop, network, open, selected, stale } = props;
  const { node } = stop;
  return (
    <button
      type="button"
      className="network-stop"
      data-stop={stop.id}
      data-layer={stop.layer}
      data-missing={stop.missing}
      data-problem={stop.problem}
      aria-pressed={selected}
      title={node?.message || stop.about}
      style={{ left: left(stop), top: top(stop), width: size.width, height: size.height }}
      onClick={() => node && open(node)}
    >
      <span className="network-name">
        <span>{stop.title}</span>
        {node?.health && <HealthBadge status={node.health} cause={node.message} stale={stale} weight="quiet" />}
      </span>
      <span className="quiet">{stop.about}</span>
      <VisuallyHidden>{spoken(stop, network)}</VisuallyHidden>
    </button>
  );
}
