import { useMemo, useState } from 'react';
import './diff.css';
import { t } from '../../../texts';
import { type Block, type Comparison, compare, fold, foldTitle, type Line, type Piece } from './lines';

export type Mode = 'split' | 'unified';

/** So many lines around a change are shown. */
const context = 3;

/** Two texts beside each other, or below each other, with what differs. */
export function ComparisonView({ left, right, mode }: { left: string; right: string; mode: Mode }) {
  const found = useMemo(() => compare(left, right), [left, right]);
  if (found.changes === 0) return <p className="quiet diff-equal">{t('Nothing differs.')}</p>;
  return <Rows found={found} mode={mode} />;
}

export function Rows({ found, mode }: { found: Comparison; mode: Mode }) {
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const blocks = useMemo(() => fold(found.lines, context), [found]);
  return (
    <table className="diff-table" data-mode={mode} data-testid="diff">
      <colgroup>
        <col className="diff-no" />
        <col />
        <col className="diff-no" />
        {mode === 'split' && <col />}
      </colgroup>
      <thead>
        <tr>
          <th className="sr-only" scope="col">
            {t('Line')}
          </th>
          <th scope="col">{mode === 'split' ? t('Live') : ''}</th>
          <th className="sr-only" scope="col">
            {t('Line')}
          </th>
          {mode === 'split' && <th scope="col">{t('Desired')}</th>}
        </tr>
      </thead>
      <tbody>
        {blocks.map((b) =>
          b.folded && !opened.has(b.from) ? (
            <Fold
              key={b.from}
              title={foldTitle(found.lines, b)}
              wide={mode === 'split'}
              open={() => setOpened((held) => new Set([...held, b.from]))}
            />
          ) : (
            <Lines key={b.from} lines={found.lines} block={b} mode={mode} />
          ),
        )}
      </tbody>
    </table>
  );
}

function Fold({ title, wide, open }: { title: string; wide: boolean; open: () => void }) {
  return (
    <tr className="diff-fold">
      <td colSpan={wide ? 4 : 3}>
        <button type="button" onClick={open} aria-label={t('Show {{title}}', { title })}>
          <span aria-hidden>⋯</span> {title}
        </button>
      </td>
    </tr>
  );
}

function Lines({ lines, block, mode }: { lines: Line[]; block: Block; mode: Mode }) {
  const shown = lines.slice(block.from, block.to);
  if (mode === 'split') return shown.map((l) => <SplitLine key={`${l.left} ${l.right}`} line={l} />);
  return unified(shown).map((u) => <UnifiedLine key={`${u.side} ${u.line.left} ${u.line.right}`} {...u} />);
}

interface Unified {
  line: Line;
  side: 'left' | 'right';
}

/** What goes before what comes, change by change. */
function unified(lines: Line[]): Unified[] {
  const out: Unified[] = [];
  let right: Unified[] = [];
  let change = -1;
  for (const line of lines) {
    if (line.change !== change) {
      out.push(...right);
      right = [];
      change = line.change;
    }
    if (line.left !== undefined) out.push({ line, side: 'left' });
    if (line.kind !== 'same' && line.right !== undefined) right.push({ line, side: 'right' });
  }
  return [...out, ...right];
}

function Text({ pieces, as }: { pieces: Piece[]; as: 'del' | 'ins' }) {
  const Mark = as;
  return pieces.map((p, i) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces have no identity but their place
    p.marked ? <Mark key={i}>{p.text}</Mark> : <span key={i}>{p.text}</span>,
  );
}

function SplitLine({ line }: { line: Line }) {
  const changed = line.kind !== 'same';
  return (
    <tr data-kind={line.kind} data-change={line.change}>
      <td className="diff-no">{line.left}</td>
      <td className={changed && line.left !== undefined ? 'gone' : line.left === undefined ? 'hole' : ''}>
        <Text pieces={line.leftPieces} as="del" />
      </td>
      <td className="diff-no">{line.right}</td>
      <td className={changed && line.right !== undefined ? 'come' : line.right === undefined ? 'hole' : ''}>
        <Text pieces={line.rightPieces} as="ins" />
      </td>
    </tr>
  );
}

function UnifiedLine({ line, side }: Unified) {
  const changed = line.kind !== 'same';
  const gone = side === 'left';
  return (
    <tr data-kind={line.kind} data-change={line.change}>
      <td className="diff-no">{gone ? line.left : ''}</td>
      <td className={changed ? (gone ? 'gone' : 'come') : ''}>
        <span className="diff-sign">{changed ? (gone ? '- ' : '+ ') : '  '}</span>
        <Text pieces={gone ? line.leftPieces : line.rightPieces} as={gone ? 'del' : 'ins'} />
      </td>
      <td className="diff-no">{gone && changed ? '' : line.right}</td>
    </tr>
  );
}
