export interface DiffLine {
  sign: '-' | '+';
  text: string;
}

/** The lines that only one of two texts has: what a policy says does not depend on the order of its lines. */
export function lineDiff(before: string, after: string): DiffLine[] {
  const only = (lines: string[], others: string[], sign: DiffLine['sign']) => {
    const left = new Map<string, number>();
    for (const text of others) left.set(text, (left.get(text) ?? 0) + 1);
    return lines.flatMap((text): DiffLine[] => {
      const count = left.get(text) ?? 0;
      left.set(text, count - 1);
      return count <= 0 && text.trim() !== '' ? [{ sign, text }] : [];
    });
  };
  const was = before.split('\n');
  const is = after.split('\n');
  return [...only(was, is, '-'), ...only(is, was, '+')];
}
