import { expect, test } from 'vitest';
import type { Application, Node, StreamEvent, Tree } from './client';
import { type Details, detailed } from './detail';

const node = (name: string, message = ''): Node => ({
  group: '',
  version: 'v1',
  kind: 'Pod',
  name,
  managed: true,
  message,
});
const tree = (tag: string, ...nodes: Node[]): Tree => ({ tag, cursor: '', nodes });
const application = (status: object, generation = 1) =>
  ({ metadata: { name: 'web', generation }, spec: {}, status }) as unknown as Application;
const detail = (rest: Partial<StreamEvent>): StreamEvent => ({ kind: 'detail', id: 'a', ...rest });
const held: Details = {
  application: application({ sync: { status: 'Synced', revision: 'r' }, conditions: [] }),
  tree: tree('1', node('a'), node('b'), node('c')),
};

test('API-09 objects are put in their places, and the others stay the same', () => {
  const next = detailed(
    held,
    detail({ base: '1', removed: [1, 2], at: [0, 2], tree: tree('2', node('A'), node('b', 'x')) }),
  );
  expect(next?.tree).toEqual(tree('2', node('A'), node('a'), node('b', 'x')));
  expect(next?.tree?.nodes[1]).toBe(held.tree?.nodes[0]);
  expect(held.tree?.nodes).toHaveLength(3);
  expect(detailed(held, detail({ base: '1', tree: tree('1') }))?.tree).toEqual(held.tree);
  expect(detailed(held, detail({ tree: tree('3') }))?.tree).toEqual(tree('3'));
});

test('API-09 fields of the application are replaced whole, those of its status one by one, and null takes one out', () => {
  const changed = {
    metadata: { name: 'web', generation: 2 },
    status: { sync: { status: 'OutOfSync' }, conditions: null },
  };
  const next = detailed(held, detail({ base: '1', tree: tree('1'), changed }));
  expect(next?.application).toEqual(application({ sync: { status: 'OutOfSync' } }, 2));
  expect(detailed(held, detail({ base: '1', tree: tree('1') }))?.application).toEqual(held.application);
});

test('API-09 what does not continue what is held is not put into it', () => {
  expect(detailed(held, detail({ base: '0', tree: tree('2') }))).toBeUndefined();
  expect(detailed({ tree: held.tree }, detail({ base: '1', tree: tree('2') }))).toBeUndefined();
  expect(
    detailed({}, detail({ base: '1', tree: tree('2'), application: held.application as Application })),
  ).toBeUndefined();
  expect(detailed(held, detail({ gone: true }))).toBeUndefined();
});
