import { stratify } from 'd3-hierarchy';

export interface Placed<T> {
  id: string;
  parent: string;
  data: T;
  x: number;
  y: number;
}

export const cell = { width: 250, height: 60 };

/**
 * Places owned things to the right of their owners, in rows from the top left:
 * an owner stands beside the first thing that it owns. Whatever names an owner
 * that is not there hangs below the root.
 */
export function layout<T>(
  rootId: string,
  root: T,
  items: T[],
  id: (t: T) => string,
  parent: (t: T) => string | undefined,
): Placed<T>[] {
  const known = new Set([rootId, ...items.map(id)]);
  const rows = [
    { id: rootId, parent: '', data: root },
    ...items.map((data) => {
      const owner = parent(data);
      return { id: id(data), parent: owner && known.has(owner) && owner !== id(data) ? owner : rootId, data };
    }),
  ];
  const unique = [...new Map(rows.map((r) => [r.id, r])).values()];
  const top = stratify<(typeof rows)[number]>()
    .id((r) => r.id)
    .parentId((r) => r.parent)(unique);
  const placed: Placed<T>[] = [];
  let row = -1;
  top.eachBefore((n) => {
    if (n.parent?.children?.[0] !== n) row++;
    placed.push({ ...n.data, x: n.depth * (cell.width + 50), y: row * cell.height });
  });
  return placed;
}
