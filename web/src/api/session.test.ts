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

test('RBAC-13 what is denied names the right, the project where there is one, and whom to ask', () => {
  const reader = withRights({ resource: 'applications', action: 'get', all: true, projects: [] });
  expect(denied(reader, 'applications', 'get', 'x')).toBe('');
  const ask = 'Ask an admin of the tenant for:';
  expect(denied(reader, 'applications', 'sync', 'x')).toBe(
    `You may not sync applications of project x. ${ask} applications, sync, x/*.`,
  );
  expect(denied(reader, 'projects', 'update', 'x')).toBe(`You may not change project x. ${ask} projects, update, x.`);
  expect(denied(reader, 'audit', 'get')).toBe(`You may not see the audit log. ${ask} audit, get, *.`);
  expect(denied(undefined, 'clusters', 'create')).toBe(`You may not create clusters. ${ask} clusters, create, *.`);
  expect(denied(reader, 'tenants', 'set-quota')).toBe(
    'You may not set quotas of tenants. Ask a platform admin for: tenants, set-quota, *.',
  );
});
