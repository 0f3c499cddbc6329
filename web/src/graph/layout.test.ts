import { expect, test } from 'vitest';
import { layout } from './layout';

interface Item {
  id: string;
  owner?: string;
}
const at = (items: Item[]) =>
  layout<Item>(
    'app',
    { id: 'app' },
    items,
    (i) => i.id,
    (i) => i.owner,
  );

test('owned objects stand to the right of their owner', () => {
  const placed = at([{ id: 'deploy' }, { id: 'rs', owner: 'deploy' }]);
  const x = new Map(placed.map((p) => [p.id, p.x]));
  expect((x.get('rs') ?? 0) > (x.get('deploy') ?? 0)).toBe(true);
});

test('an owner that is not there does not lose the object', () => {
  expect(at([{ id: 'pod', owner: 'gone' }]).find((p) => p.id === 'pod')?.parent).toBe('app');
});

test('an object that is listed twice is drawn once', () => {
  expect(at([{ id: 'a' }, { id: 'a' }])).toHaveLength(2);
});
