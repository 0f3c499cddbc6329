import { t } from '../../texts';
import type { ShapeName, Tone } from '../../ui/shapes';

const browsers: [RegExp, string][] = [
  [/Edg\//, 'Edge'],
  [/OPR\//, 'Opera'],
  [/Firefox\//, 'Firefox'],
  [/Chrome\//, 'Chrome'],
  [/Safari\//, 'Safari'],
];
const systems: [RegExp, string][] = [
  [/Android/, 'Android'],
  [/iPhone|iPad/, 'iOS'],
  [/Windows/, 'Windows'],
  [/Mac OS X/, 'macOS'],
  [/Linux/, 'Linux'],
];

/** What people call the program that a session belongs to. */
export function deviceName(client: string | undefined): string {
  if (!client) return t('Unknown program');
  if (client.startsWith('capstan/')) return t('Command line {{version}}', { version: client.slice('capstan/'.length) });
  const browser = browsers.find(([pattern]) => pattern.test(client))?.[1];
  if (!browser) return client;
  const system = systems.find(([pattern]) => pattern.test(client))?.[1];
  return system ? t('{{browser}} on {{system}}', { browser, system }) : browser;
}

const soon = 7 * 24 * 3600 * 1000;

/** How a token looks: it works, expires within a week, or has expired. */
export function tokenLook(token: { expiresAt?: string }, now: number): { label: string; tone: Tone; shape: ShapeName } {
  const left = token.expiresAt ? Date.parse(token.expiresAt) - now : Number.POSITIVE_INFINITY;
  if (left <= 0) return { label: t('Expired'), tone: 'failed', shape: 'failed' };
  if (left < soon) return { label: t('Expires soon'), tone: 'attention', shape: 'hand' };
  return { label: t('Valid'), tone: 'ok', shape: 'done' };
}
