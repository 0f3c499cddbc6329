import { t } from '../../../texts';

/** What a sync does with an object that differs. */
export type Action = 'create' | 'change' | 'delete';

export const actionSigns: Record<Action, string> = { create: '+', change: '≠', delete: '−' };
export const actionWords: Record<Action, string> = { create: t('create'), change: t('change'), delete: t('delete') };
