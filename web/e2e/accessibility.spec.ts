import { expect, looks, test } from './console';

/** How many looks the specs before this one take, in both colour schemes. */
const taken = 168;

test('UX-A11-1 no page has a serious barrier', () => {
  const all = looks();
  expect(all.flatMap((l) => l.barriers)).toEqual([]);
  expect(all.length).toBe(taken);
});
