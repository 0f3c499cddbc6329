import { expect, test } from 'vitest';
import { windowsOf } from './window';

test('UX-NAV-1 only the windows are read in which something is shown', () => {
  expect(windowsOf(0, 30, 100)).toEqual([0]);
  expect(windowsOf(95, 120, 100)).toEqual([0, 1]);
  expect(windowsOf(9_990, 9_999, 100)).toEqual([99]);
  expect(windowsOf(-5, -1, 100)).toEqual([0]);
});
