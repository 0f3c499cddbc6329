import { expect, test } from 'vitest';
import type { AppProject } from './api';
import { destinationsOf, kindsOf, readText, simpleOf, sourcesOf, textOf, withSimple } from './model';

const project: AppProject = {
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'AppProject',
  metadata: { name: 'shop', resourceVersion: '7', uid: 'u' },
  spec: {
    description: 'The shop',
    sourceRepos: ['https://git.example.com/*'],
    destinations: [
      { server: 'https://prod', namespace: 'shop', extra: 1 },
      { name: '*', namespace: '*' },
    ],
  },
};

test('UI-16 what a project permits is in words', () => {
  expect(sourcesOf(project)).toBe('https://git.example.com/*');
  expect(sourcesOf({ ...project, spec: { sourceRepos: ['*'] } })).toBe('any repository');
  expect(sourcesOf({ ...project, spec: {} })).toBe('none');
  expect(destinationsOf(project)).toBe('shop on https://prod; anywhere');
  expect(destinationsOf({ ...project, spec: {} })).toBe('nowhere');
  expect(
    kindsOf(
      [
        { group: 'apps', kind: '*' },
        { group: '', kind: 'Secret' },
      ],
      'none',
    ),
  ).toBe('every kind of apps, Secret');
  expect(kindsOf(null, 'every kind')).toBe('every kind');
});

test('UI-16 a form changes its lists and leaves everything else', () => {
  const changed = withSimple(project, { ...simpleOf(project), destinations: 'https://prod shop\nstage web' });
  expect(changed.spec.destinations).toEqual([
    { server: 'https://prod', namespace: 'shop', extra: 1 },
    { name: 'stage', namespace: 'web' },
  ]);
  expect(withSimple(project, simpleOf(project))).toEqual(project);
});

test('UI-16 the text of a project has nothing of the hub, and keeps the version that it is based on', () => {
  const text = textOf(project);
  expect(text).not.toContain('uid');
  expect(text).not.toContain('resourceVersion');
  expect(readText(text, project)).toEqual({
    error: '',
    project: { ...project, metadata: { name: 'shop', resourceVersion: '7' } },
  });
  expect(readText('spec: [', project).error).not.toBe('');
  expect(readText('kind: AppProject', project).error).toBe('It has no spec.');
  expect(readText('metadata: {name: other}\nspec: {}', project).error).toContain('The name stays shop');
});
