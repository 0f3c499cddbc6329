import { describe, expect, test } from 'vitest';
import { compare, fold, foldTitle } from './lines';

const marks = (pieces: { text: string; marked: boolean }[]) => pieces.filter((p) => p.marked).map((p) => p.text);
const textOf = (pieces: { text: string }[]) => pieces.map((p) => p.text).join('');
const many = (n: number, change = -1) =>
  `${Array.from({ length: n }, (_, i) => (i === change ? `key${i}: new` : `key${i}: old`)).join('\n')}\n`;

describe('compare', () => {
  test('UX-DIF-1 a changed value is marked in its line, on both sides', () => {
    const found = compare('a: 1\nlevel: debug\nz: 2\n', 'a: 1\nlevel: info\nz: 2\n');
    expect(found).toMatchObject({ added: 1, removed: 1, changes: 1 });
    const line = found.lines[1];
    expect(line).toMatchObject({ kind: 'changed', left: 2, right: 2 });
    expect(marks(line?.leftPieces ?? []).join('')).not.toContain('level');
    expect(textOf(line?.leftPieces ?? [])).toBe('level: debug');
    expect(textOf(line?.rightPieces ?? [])).toBe('level: info');
    expect(marks(line?.rightPieces ?? []).length).toBeGreaterThan(0);
  });

  test('lines that are new or gone stand alone', () => {
    expect(compare('a: 1\nc: 3\n', 'a: 1\nb: 2\nc: 3\n').lines.map((l) => l.kind)).toEqual(['same', 'added', 'same']);
    expect(compare('a: 1\nb: 2\n', 'a: 1\n').lines.map((l) => l.kind)).toEqual(['same', 'removed']);
    expect(compare('a: 1\n', 'a: 1\nb: 2\n').lines.map((l) => l.kind)).toEqual(['same', 'added']);
    expect(compare('b: 2\n', 'a: 1\nb: 2\n').lines.map((l) => l.kind)).toEqual(['added', 'same']);
  });

  test('an object that is new or deleted is one change', () => {
    expect(compare('', 'a: 1\nb: 2\n')).toMatchObject({ added: 2, removed: 0, changes: 1 });
    expect(compare('a: 1\n', '')).toMatchObject({ added: 0, removed: 1, changes: 1 });
    expect(compare('', '')).toMatchObject({ lines: [], changes: 0 });
  });

  test('each line of both sides is there once, whatever changes', () => {
    const words = ['a: 1', 'b: 2', '  c: 3', 'd:', '- e', '- f: 4', ''];
    let seed = 7;
    const next = (n: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % n;
    };
    for (let round = 0; round < 300; round++) {
      const make = () => Array.from({ length: next(12) }, () => `${words[next(words.length)]}`).join('\n');
      const left = make();
      const right = make();
      const found = compare(left, right);
      const of = (side: 'left' | 'right') =>
        found.lines.flatMap((l) =>
          l[side] === undefined ? [] : [textOf(side === 'left' ? l.leftPieces : l.rightPieces)],
        );
      const lines = (text: string) => {
        const all = text.split('\n');
        if (all.at(-1) === '') all.pop();
        return all;
      };
      expect(of('left')).toEqual(lines(left));
      expect(of('right')).toEqual(lines(right));
      for (const l of found.lines) if (l.kind === 'same') expect(textOf(l.leftPieces)).toBe(textOf(l.rightPieces));
    }
  });
});

describe('fold', () => {
  test('UX-DIF-1 what is equal and far from a change is folded, and named', () => {
    const { lines } = compare(many(40), many(40, 20));
    const blocks = fold(lines, 3);
    expect(blocks.map((b) => [b.folded, b.to - b.from])).toEqual([
      [true, 17],
      [false, 7],
      [true, 16],
    ]);
    expect(foldTitle(lines, { folded: true, from: 0, to: 17 })).toBe('17 equal lines, key0 to key16');
  });

  test('a fold of one or two lines is none', () => {
    const { lines } = compare(many(5), many(5, 0));
    expect(fold(lines, 3).map((b) => b.folded)).toEqual([false]);
  });
});
