import { expect, test } from 'vitest';
import { pageTitle } from './page-title';

test('the title says what is open, in which organisation', () => {
  expect(pageTitle('/applications/argocd/guestbook', 'shop')).toBe('guestbook · shop · Capstan');
  expect(pageTitle('/clusters', 'shop')).toBe('Clusters · shop · Capstan');
  expect(pageTitle('/', '')).toBe('Capstan');
});
