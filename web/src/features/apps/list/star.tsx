import { IconStar, IconStarFilled } from '@tabler/icons-react';
import { t } from '../../../texts';
import type { Row } from './api';

/** Makes an application a favourite of this browser, or no longer. */
export function Star({ row, on, toggle }: { row: Row; on: boolean; toggle: (row: Row) => void }) {
  return (
    <button
      type="button"
      className="star"
      aria-pressed={on}
      aria-label={t('Favourite {{name}}', { name: row.name })}
      onClick={() => toggle(row)}
    >
      {on ? <IconStarFilled size={14} aria-hidden /> : <IconStar size={14} aria-hidden />}
    </button>
  );
}
