import { expect, test } from 'vitest';
import { lineDiff } from './line-diff';

const words = (before: string, after: string) => lineDiff(before, after).map((l) => `${l.sign} ${l.text}`);

test('UX-ACC-1 lines that only one of two policies has are named, each as often as it is there', () => {
  expect(words('a\nb\nc\n', 'c\na\nd\n')).toEqual(['- b', '+ d']);
  expect(words('a\na\n', 'a\n')).toEqual(['- a']);
  expect(words('', 'a\n\nb')).toEqual(['+ a', '+ b']);
  expect(words('a\n', 'a\n')).toEqual([]);
});
