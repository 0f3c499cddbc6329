import { useElementSize, useMergedRef } from '@mantine/hooks';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useRef } from 'react';
import { ago, exact } from '../../../format/format';
import { t } from '../../../texts';
import type { Row } from './api';
import { Pick } from './bulk';
import { DriftCell, HealthCell, keyOf, SourceCell, WhyCell } from './columns';
import { Star } from './star';
import { type ListProps, Name } from './table';
import { useArrows, useWindow } from './window';

const narrowest = 280;
const height = 132;

/** Applications as tiles, as many beside each other as there is room for. */
export function Tiles({ spec, total, favourites, star, picked, setPicked }: ListProps) {
  const { ref, width } = useElementSize<HTMLElement>();
  const scroller = useRef<HTMLElement>(null);
  const both = useMergedRef(ref, scroller);
  const across = Math.max(1, Math.floor(width / narrowest));
  const lines = useVirtualizer({
    count: Math.ceil(total / across),
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 3,
  });
  const items = lines.getVirtualItems();
  const first = (items[0]?.index ?? 0) * across;
  const last = Math.min(total, ((items.at(-1)?.index ?? 0) + 1) * across) - 1;
  const at = useWindow(spec, first, last);
  const move = useArrows((index) => lines.scrollToIndex(Math.floor(index / across)), total, across);
  const places = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section ref={both} className="list app-tiles" tabIndex={0} aria-label={t('Applications')} onKeyDown={move}>
      <div style={{ height: items[0]?.start ?? 0 }} />
      <ul style={{ gridTemplateColumns: `repeat(${across}, minmax(0, 1fr))` }}>
        {places.map((i) => {
          const row = at(i);
          return (
            <li key={i} data-index={i} aria-posinset={i + 1} aria-setsize={total}>
              {row ? (
                <Tile
                  row={row}
                  on={favourites.includes(keyOf(row))}
                  star={star}
                  pick={<Pick row={row} picked={picked} setPicked={setPicked} />}
                />
              ) : (
                <span className="coming" />
              )}
            </li>
          );
        })}
      </ul>
      <div style={{ height: Math.max(0, lines.getTotalSize() - (items.at(-1)?.end ?? 0)) }} />
    </section>
  );
}

function Tile({ row, on, star, pick }: { row: Row; on: boolean; star: (row: Row) => void; pick: ReactNode }) {
  return (
    <>
      <div className="line name-cell">
        {pick}
        <Star row={row} on={on} toggle={star} />
        <Name row={row} />
        <span className="quiet age" title={exact(row.changedAt)}>
          {ago(row.changedAt, Date.now())}
        </span>
      </div>
      <div className="line">
        <HealthCell row={row} />
        <DriftCell row={row} />
      </div>
      <div className="line cut">
        <WhyCell row={row} />
      </div>
      <div className="line cut quiet">
        <SourceCell row={row} />
      </div>
      <div className="line cut quiet">
        {[row.project, row.cluster, row.destinationNamespace].filter(Boolean).join(' / ')}
      </div>
    </>
  );
}
