import { expect, test } from 'vitest';
import type { KnownSetting, Setting } from '../../api/client';
import { glimpse, has, rows } from './model';

const known: KnownSetting[] = [
  { map: 'argocd-cm', key: 'resource.exclusions', about: 'Kinds that are left alone.', sample: '[]', used: true },
  { map: 'argocd-cm', key: 'resource.customizations.health.', about: 'Health.', sample: 'x', used: false },
];
const set = (map: string, key: string, more: Partial<Setting> = {}): Setting => ({
  map,
  key,
  value: 'v',
  secret: false,
  used: false,
  updatedAt: '2026-01-01T00:00:00Z',
  updatedBy: 'ann',
  ...more,
});

test('known keys come first, families stay open for more, and unknown keys follow', () => {
  const items = [set('argocd-cm', 'resource.customizations.health.a_B'), set('argocd-cm', 'url')];
  expect(rows(items, known).map((r) => [r.key, Boolean(r.setting), r.family])).toEqual([
    ['resource.exclusions', false, false],
    ['resource.customizations.health.a_B', true, false],
    ['resource.customizations.health.', false, true],
    ['url', true, false],
  ]);
});

test('a map whose keys are names of hosts is a family, and versions of Kustomize are one', () => {
  const more: KnownSetting[] = [
    { map: 'argocd-tls-certs-cm', key: '*', about: 'Authorities.', sample: 'x', used: true },
    { map: 'argocd-cm', key: 'kustomize.buildOptions.', about: 'Options.', sample: 'x', used: true },
  ];
  const items = [set('argocd-tls-certs-cm', 'git.example.com'), set('argocd-cm', 'kustomize.buildOptions.v5.4.1')];
  expect(rows(items, more).map((r) => [r.key, r.family, r.rest.short])).toEqual([
    ['git.example.com', false, 'host'],
    ['', true, 'host'],
    ['kustomize.buildOptions.v5.4.1', false, 'version'],
    ['kustomize.buildOptions.', true, 'version'],
  ]);
});

test('a key of the same name in another map is another key', () => {
  expect(rows([set('argocd-secret', 'resource.exclusions', { secret: true })], known).length).toBe(3);
});

test('a glimpse shows one line, and nothing of a secret', () => {
  expect(glimpse(set('a', 'b', { value: 'one\ntwo\n' }))).toBe('one … (2 lines)');
  expect(glimpse(set('a', 'b', { value: 'one\n' }))).toBe('one');
  expect(glimpse(set('a', 'b', { secret: true }))).toBe('secret, never shown');
  expect(glimpse(undefined)).toBe('');
});

test('a search looks at names and meaning', () => {
  const row = rows([], known)[0];
  expect(row && has(row, ' LEFT alone ')).toBe(true);
  expect(row && has(row, 'health')).toBe(false);
});
