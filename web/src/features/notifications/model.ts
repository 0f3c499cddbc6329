import { t } from '../../texts';
import type { Look } from '../../ui/badges';
import type { Delivery, DeliveryState } from './api';

export const states = ['pending', 'delivered', 'failed', 'skipped'] as const;

const looks: Record<DeliveryState, Look> = {
  pending: { label: t('Being sent'), tone: 'working', shape: 'running' },
  delivered: { label: t('Delivered'), tone: 'ok', shape: 'done' },
  failed: { label: t('Failed'), tone: 'failed', shape: 'failed' },
  skipped: { label: t('Not sent'), tone: 'unknown', shape: 'absent' },
};

/** How the state of a delivery is shown. */
export const lookOf = (state: DeliveryState) => looks[state];

/** Whom a message is for, as subscriptions write it. */
export const recipientOf = (d: Delivery) => (d.recipient ? `${d.service}:${d.recipient}` : d.service);

/** Splits a request as it was recorded into its head and its body. */
export function requestParts(request: string): { head: string; body: string } {
  const [head = '', ...rest] = request.split('\n');
  return { head, body: pretty(rest.join('\n')) };
}

/** JSON with line breaks; any other text as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
