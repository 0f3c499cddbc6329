import { expect, test } from 'vitest';
import type { Me } from './client';
import { denied, may } from './session';

const withRights = (...permissions: Me['permissions']): Me => ({
  username: 'ann',
  tenant: 'default',
  roles: [],
  via: 'session',
  permissions,
});

test('a right counts in its project, a right everywhere in each', () => {
  const me = withRights(
    { resource: 'applications', action: 'sync', all: false, projects: ['web'] },
    { resource: 'clusters', action: '*', all: true, projects: [] },
  );
  expect(may(me, 'applications', 'sync', 'web')).toBe(true);
  expect(may(me, 'applications', 'sync', 'shop')).toBe(false);
  expect(may(me, 'applications', 'sync')).toBe(true);
  expect(may(me, 'clusters', 'create')).toBe(true);
});

test('RBAC-13 what is denied names the right, and the project where there is one', () => {
  const reader = withRights({ resource: 'applications', action: 'get', all: true, projects: [] });
  expect(denied(reader, 'applications', 'get', 'x')).toBe('');
  expect(denied(reader, 'applications', 'sync', 'x')).toBe('You need the right applications sync on project x.');
  expect(denied(reader, 'settings', 'update')).toBe('You need the right settings update.');
  expect(denied(undefined, 'clusters', 'create')).toBe('You need the right clusters create.');
});
