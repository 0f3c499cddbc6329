import { expect, test } from 'vitest';
import { moveOf, type Stop } from './tree-keys';

const stops: Stop[] = [
  { id: 'deployment', parent: 'root', open: true },
  { id: 'replicaset', parent: 'deployment', open: true },
  { id: 'pod', parent: 'replicaset' },
  { id: 'group', parent: 'root', open: false },
  { id: 'service', parent: 'root' },
];

test('UX-NAV-8(part) arrows walk a tree as in any other', () => {
  const cases: [from: string, key: string, does: ReturnType<typeof moveOf>][] = [
    ['deployment', 'ArrowDown', { to: 'replicaset' }],
    ['deployment', 'ArrowUp', undefined],
    ['service', 'ArrowDown', undefined],
    ['group', 'ArrowUp', { to: 'pod' }],
    ['deployment', 'ArrowRight', { to: 'replicaset' }],
    ['group', 'ArrowRight', { toggle: 'group' }],
    ['pod', 'ArrowRight', undefined],
    ['pod', 'ArrowLeft', { to: 'replicaset' }],
    ['replicaset', 'ArrowLeft', { toggle: 'replicaset' }],
    ['service', 'ArrowLeft', undefined],
    ['pod', 'Home', { to: 'deployment' }],
    ['pod', 'End', { to: 'service' }],
    ['service', 'End', undefined],
    ['pod', 'x', undefined],
    ['gone', 'ArrowDown', undefined],
  ];
  for (const [from, key, does] of cases) expect(moveOf(stops, from, key), `${key} at ${from}`).toEqual(does);
});
