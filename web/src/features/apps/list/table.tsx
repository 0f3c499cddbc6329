import { Anchor, Table } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type CSSProperties, memo, useMemo, useRef } from 'react';
import { t } from '../../../texts';
import { NoticeIcon } from '../notice';
import type { Row, Spec } from './api';
import { isPicked, Pick, PickAll, type Picked } from './bulk';
import { type Column, columns, keyOf } from './columns';
import { Star } from './star';
import type { Looks } from './stored';
import { useArrows, useWindow } from './window';

export interface ListProps {
  spec: Spec;
  total: number;
  looks: Looks;
  sort: string;
  setSort: (sort: string) => void;
  favourites: string[];
  star: (row: Row) => void;
  picked: Picked;
  setPicked: (picked: Picked) => void;
}

/** Rows of applications, of which only those are read and drawn that are to be seen. */
export function RowTable(props: ListProps) {
  const { spec, total, looks, sort, setSort, favourites, star, picked, setPicked } = props;
  const height = looks.compact ? 30 : 36;
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
  });
  const items = rows.getVirtualItems();
  const at = useWindow(spec, items[0]?.index ?? 0, items.at(-1)?.index ?? 0);
  const move = useArrows((index) => rows.scrollToIndex(index), total, 1);
  const before = items[0]?.start ?? 0;
  const after = rows.getTotalSize() - (items.at(-1)?.end ?? 0);
  const shown = useMemo(() => columns.filter((c) => looks.columns.includes(c.key)), [looks.columns]);
  const age = Math.floor(Date.now() / written);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section ref={scroller} className="list" tabIndex={0} aria-label={t('Applications')} onKeyDown={move}>
      <Table stickyHeader highlightOnHover aria-rowcount={total + 1} style={columnCount(shown.length)}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th className="w-pick">
              <PickAll picked={picked} setPicked={setPicked} total={total} />
            </Table.Th>
            <Head title={t('Name')} by="name" width="w-name" sort={sort} setSort={setSort} />
            {shown.map((c) => (
              <Head key={c.key} title={c.title} by={c.sort} width={widthOf(c)} sort={sort} setSort={setSort} />
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {before > 0 && <tr aria-hidden style={{ height: before }} />}
          {items.map((item) => {
            const row = at(item.index);
            return (
              <Line
                key={item.index}
                index={item.index}
                row={row}
                height={height}
                shown={shown}
                favourite={row !== undefined && favourites.includes(keyOf(row))}
                star={star}
                picked={picked}
                setPicked={setPicked}
                age={age}
              />
            );
          })}
          {after > 0 && <tr aria-hidden style={{ height: after }} />}
        </Table.Tbody>
      </Table>
    </section>
  );
}

/** How long it takes at most, in milliseconds, until a row that is drawn says anew how long ago something was. */
const written = 10_000;

interface LineProps {
  index: number;
  row: Row | undefined;
  height: number;
  shown: readonly Column[];
  favourite: boolean;
  star: (row: Row) => void;
  picked: Picked;
  setPicked: (picked: Picked) => void;
  /** Another one has the row say its times anew. */
  age: number;
}

/** One row. It is drawn again only if what it shows has changed: most changes of the page leave all rows as they are. */
const Line = memo(function Line({ index, row, height, shown, favourite, star, picked, setPicked }: LineProps) {
  return (
    <Table.Tr
      h={height}
      data-index={index}
      aria-rowindex={index + 2}
      data-picked={row !== undefined && isPicked(picked, row)}
    >
      <Table.Td className="pick-cell">{row && <Pick row={row} picked={picked} setPicked={setPicked} />}</Table.Td>
      <Table.Td className="name-cell">
        {row ? (
          <>
            <Star row={row} on={favourite} toggle={star} />
            <Name row={row} />
          </>
        ) : (
          <span className="coming" />
        )}
      </Table.Td>
      {shown.map((c) => (
        <Table.Td key={c.key} className={c.first ? '' : 'second'} {...(row ? { title: c.hint?.(row) } : {})}>
          {row ? c.cell(row) : <span className="coming" />}
        </Table.Td>
      ))}
    </Table.Tr>
  );
});

/** How many columns there are, for the style sheet: a table with many is wider than the page. */
const columnCount = (n: number) => ({ '--columns': n }) as CSSProperties;

const widthOf = (c: Column) => `${c.first ? '' : 'second'} ${c.width}`.trim();

/** The name of an application, which leads to its page, with the notice on it. */
export function Name({ row }: { row: Row }) {
  return (
    <>
      <Anchor
        renderRoot={(props) => (
          <Link
            to="/applications/$namespace/$name"
            params={{ namespace: row.namespace, name: row.name }}
            preload={false}
            {...props}
          />
        )}
      >
        {row.name}
      </Anchor>{' '}
      {row.notice && <NoticeIcon app={{ metadata: { annotations: row.notice } }} />}
    </>
  );
}

const directions = { ascending: 'ascending', descending: 'descending' } as const;

/** The head of a column. What the hub sorts by is a button, which turns the direction. */
function Head(props: {
  title: string;
  by: string | undefined;
  width: string;
  sort: string;
  setSort: (sort: string) => void;
}) {
  const { title, by, width, sort, setSort } = props;
  if (!by) return <Table.Th className={width}>{title}</Table.Th>;
  const now = sort === `-${by}` ? directions.descending : sort === by ? directions.ascending : undefined;
  // States and times are of most use from their end: the worst, the newest.
  const firstly = by === 'name' || by === 'project' ? by : `-${by}`;
  const other = firstly.startsWith('-') ? by : `-${by}`;
  return (
    <Table.Th className={width} aria-sort={now ?? 'none'}>
      <button type="button" className="sort" onClick={() => setSort(sort === firstly ? other : firstly)}>
        {title}
        <span aria-hidden>{now === 'descending' ? ' ↓' : now === 'ascending' ? ' ↑' : ''}</span>
      </button>
    </Table.Th>
  );
}
