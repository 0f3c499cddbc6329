import { Chunk } from '@codemirror/merge';
import { Text } from '@codemirror/state';
import { t } from '../../../texts';

/** A piece of a line; a marked one is what changed in it. */
export interface Piece {
  text: string;
  marked: boolean;
}

/** A row of a comparison: a line of each side, or of one alone. */
export interface Line {
  kind: 'same' | 'changed' | 'removed' | 'added';
  /** Numbers of the lines from 1; undefined: the side has none. */
  left?: number;
  right?: number;
  leftPieces: Piece[];
  rightPieces: Piece[];
  /** Of which change the row is, from 0; -1: of none. */
  change: number;
}

export interface Comparison {
  lines: Line[];
  added: number;
  removed: number;
  changes: number;
}

/** Looking for more than this costs more than it tells. */
const effort = { scanLimit: 2000, timeout: 200 };

const whole = (text: string): Piece[] => [{ text, marked: false }];

function split(text: string): string[] {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

/** Marks the parts of a line between offsets of its text. */
function mark(text: string, from: number, spans: readonly [number, number][]): Piece[] {
  const out: Piece[] = [];
  let at = 0;
  for (const [begin, end] of spans) {
    const a = Math.max(begin - from, at);
    const b = Math.min(end - from, text.length);
    if (b <= a) continue;
    if (a > at) out.push({ text: text.slice(at, a), marked: false });
    out.push({ text: text.slice(a, b), marked: true });
    at = b;
  }
  if (at < text.length || out.length === 0) out.push({ text: text.slice(at), marked: false });
  return out;
}

interface Side {
  lines: string[];
  /** Offset of each line in the text. */
  starts: number[];
  /** What of the text has changed. */
  spans: [number, number][];
}

function sideOf(text: string): Side {
  const lines = split(text);
  const starts: number[] = [];
  let at = 0;
  for (const line of lines) {
    starts.push(at);
    at += line.length + 1;
  }
  return { lines, starts, spans: [] };
}

/** Which lines of a side a chunk has: from the one at its start to the one before its end. */
function range(side: Side, from: number, to: number): [number, number] {
  if (to <= from) {
    const before = side.starts.findIndex((s) => s >= from);
    const at = before < 0 ? side.lines.length : before;
    return [at, at];
  }
  const first = side.starts.findLastIndex((s) => s <= from);
  const last = side.starts.findLastIndex((s) => s < to);
  return [Math.max(first, 0), last + 1];
}

/** Compares two texts line by line, and word by word within lines that changed. */
export function compare(left: string, right: string): Comparison {
  const a = sideOf(left);
  const b = sideOf(right);
  const empty = (side: Side) => side.lines.length === 0;
  if (empty(a) || empty(b)) return oneSided(a, b);
  const chunks = Chunk.build(Text.of([...a.lines, '']), Text.of([...b.lines, '']), effort);
  const out: Comparison = { lines: [], added: 0, removed: 0, changes: chunks.length };
  let i = 0;
  let j = 0;
  const same = (until: number) => {
    for (; i < until; i++, j++) {
      const text = whole(a.lines[i] ?? '');
      out.lines.push({ kind: 'same', left: i + 1, right: j + 1, leftPieces: text, rightPieces: text, change: -1 });
    }
  };
  chunks.forEach((chunk, change) => {
    const [a0, a1] = range(a, chunk.fromA, chunk.toA);
    const [b0, b1] = range(b, chunk.fromB, chunk.toB);
    same(a0);
    i = a0;
    j = b0;
    a.spans = chunk.changes.map((c) => [chunk.fromA + c.fromA, chunk.fromA + c.toA]);
    b.spans = chunk.changes.map((c) => [chunk.fromB + c.fromB, chunk.fromB + c.toB]);
    pair(out, a, b, [a0, a1], [b0, b1], change);
    i = a1;
    j = b1;
  });
  same(a.lines.length);
  return out;
}

/** Puts the lines of one change beside each other. */
function pair(
  out: Comparison,
  a: Side,
  b: Side,
  [a0, a1]: [number, number],
  [b0, b1]: [number, number],
  change: number,
) {
  out.removed += a1 - a0;
  out.added += b1 - b0;
  const both = a1 > a0 && b1 > b0;
  for (let n = 0; n < Math.max(a1 - a0, b1 - b0); n++) {
    const l = a0 + n < a1 ? a0 + n : undefined;
    const r = b0 + n < b1 ? b0 + n : undefined;
    const pieces = (side: Side, at: number | undefined) => {
      if (at === undefined) return [];
      const text = side.lines[at] ?? '';
      return both ? mark(text, side.starts[at] ?? 0, side.spans) : whole(text);
    };
    out.lines.push({
      kind: l === undefined ? 'added' : r === undefined ? 'removed' : 'changed',
      ...(l === undefined ? {} : { left: l + 1 }),
      ...(r === undefined ? {} : { right: r + 1 }),
      leftPieces: pieces(a, l),
      rightPieces: pieces(b, r),
      change,
    });
  }
}

/** The comparison with nothing: all of it is new, or all of it goes. */
function oneSided(a: Side, b: Side): Comparison {
  const out: Comparison = { lines: [], added: 0, removed: 0, changes: a.lines.length + b.lines.length > 0 ? 1 : 0 };
  pair(out, a, b, [0, a.lines.length], [0, b.lines.length], 0);
  return out;
}

/** A run of rows that are shown, or of equal ones that are folded. */
export interface Block {
  folded: boolean;
  from: number;
  to: number;
}

/** Folds what is equal and further than so many lines from a change. Less than three lines are not worth a fold. */
export function fold(lines: readonly Line[], context: number): Block[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, i) => {
    if (line.kind === 'same') return;
    near.fill(1, Math.max(0, i - context), Math.min(lines.length, i + context + 1));
  });
  const out: Block[] = [];
  for (let i = 0; i < lines.length; ) {
    const shown = near[i] === 1;
    let end = i;
    while (end < lines.length && (near[end] === 1) === shown) end++;
    const folded = !shown && end - i > 2;
    const last = out.at(-1);
    if (last && last.folded === folded) last.to = end;
    else out.push({ folded, from: i, to: end });
    i = end;
  }
  return out;
}

/** The keys of folded lines, as people look for them: the first and the last. */
export function foldTitle(lines: readonly Line[], block: Block): string {
  const keys = lines
    .slice(block.from, block.to)
    .map((l) => /^\s*(?:- )?([\w./-]+):/.exec(l.leftPieces.map((p) => p.text).join(''))?.[1])
    .filter((k) => k !== undefined);
  const first = keys[0];
  const last = keys.at(-1);
  const n = block.to - block.from;
  if (!first || !last) return t('{{n}} equal lines', { n });
  return first === last
    ? t('{{n}} equal lines, {{first}}', { n, first })
    : t('{{n}} equal lines, {{first}} to {{last}}', { n, first, last });
}
