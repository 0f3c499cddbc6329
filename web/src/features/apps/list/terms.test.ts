import { expect, test } from 'vitest';
import { byPattern, chosen, only, partOfName, patternToggled, terms, toggled } from './terms';

test('UI-02 terms are told apart as the hub does, also in quotes', () => {
  expect(
    terms('health:degraded,Missing -cluster:"a b" label:team=x "check out" name~^w').map((t) => [
      t.not,
      t.field,
      t.key,
      t.values,
    ]),
  ).toEqual([
    [false, 'health', '', ['degraded', 'missing']],
    [true, 'cluster', '', ['a b']],
    [false, 'label', 'team', ['x']],
    [false, '', '', ['check out']],
    [false, 'name', '', ['^w']],
  ]);
});

test('UI-02 a value is added to the others of its field, and taken away again', () => {
  let q = toggled('shop', 'health', 'degraded');
  expect(q).toBe('shop health:degraded');
  q = toggled(q, 'health', 'missing');
  expect(q).toBe('shop health:degraded,missing');
  expect(chosen(q, 'health')).toEqual(['degraded', 'missing']);
  q = toggled(toggled(q, 'health', 'degraded'), 'health', 'missing');
  expect(q).toBe('shop');
});

test('UI-02 a value that is excluded is no longer asked for, and the other way', () => {
  const q = toggled('cluster:prod', 'cluster', 'prod', true);
  expect(q).toBe('-cluster:prod');
  expect(chosen(q, 'cluster', true)).toEqual(['prod']);
  expect(toggled(q, 'cluster', 'prod')).toBe('cluster:prod');
});

test('UI-02 other words of a field and of a state are understood', () => {
  expect(chosen('drift:drifted', 'sync')).toEqual(['outofsync']);
  expect(chosen('op:"Failed"', 'operation')).toEqual(['failed']);
});

test('UI-02 labels have a facet of keys and one of the values of each key', () => {
  expect(toggled('', 'label', 'team')).toBe('label:team');
  expect(toggled('label:team', 'label:team', 'a')).toBe('label:team=a');
  expect(chosen('label:team=a,b', 'label:team')).toEqual(['a', 'b']);
  expect(chosen('label:team=a', 'label')).toEqual([]);
});

test('UI-02 hostile values are quoted', () => {
  const q = toggled('', 'project', 'a" -name:b, *');
  expect(q).toBe('project:"a\\" -name:b, *"');
  expect(chosen(q, 'project')).toEqual(['a" -name:b, *']);
  expect(terms(partOfName('-x:"y')).map((t) => [t.field, t.not, t.values])).toEqual([['', false, ['-x:"y']]]);
  expect(only('shop', 'cluster', [''])).toBe('shop cluster:""');
});

test('UI-01 the name is looked for by a regular expression, and back', () => {
  const q = patternToggled('health:degraded ^web-[0-9]+$');
  expect(q).toBe('health:degraded name~^web-[0-9]+$');
  expect(byPattern(q)).toBe(true);
  expect(patternToggled(q)).toBe('health:degraded ^web-[0-9]+$');
  expect(patternToggled('')).toBe('name~.');
});
