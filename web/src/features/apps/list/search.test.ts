import { expect, test } from 'vitest';
import { listSearch, translated } from './search';

test('UI-26 filters of older addresses and of Argo CD become the query', () => {
  expect(translated({ health: 'Degraded', project: 'my shop' })?.q).toBe('project:"my shop" health:Degraded');
  expect(
    translated({
      proj: 'a,b',
      search: 'web',
      labels: 'team%3Dx',
      autoSync: 'Enabled',
      view: 'tiles',
      showFavorites: true,
    }),
  ).toEqual({ q: 'web project:a,b label:team=x auto:auto', view: 'tiles', fav: 'yes' });
});

test('UI-26 what is no address of a list counts as absent', () => {
  expect(translated({ q: 'web', sort: 'name' })).toBeUndefined();
  expect(listSearch({ q: 7, sort: '<b>', view: 'list', fav: 'no' })).toEqual({ q: '7' });
});
