import { expect, test } from 'vitest';
import { choices, groupsOf, placeOf, readPolicy, readQuestion, referencesOf, rolesOf, webAddress } from './model';

const text = `# a comment
p, role:dev, applications, sync, shop/*, allow
p, role:dev, applications, delete, prod/*, deny
p, ann, logs, get, */*, allow
g, shop-developers, role:dev
g, ann, role:admin
not a rule`;

test('UX-ACC-1 the lines of a policy are read with their numbers', () => {
  const lines = readPolicy(text);
  expect(lines.map((l) => [l.kind, l.line])).toEqual([
    ['rule', 2],
    ['rule', 3],
    ['rule', 4],
    ['grant', 5],
    ['grant', 6],
  ]);
});

test('UX-ACC-1 roles say what they allow and who has them, by the policy or by the account', () => {
  const accounts = [
    { name: 'ann', roles: ['tenant-admin', 'admin'] },
    { name: 'bob', roles: ['tenant-admin'] },
  ];
  expect(rolesOf(readPolicy(text), accounts)).toEqual([
    { name: 'role:admin', rules: 0, denials: 0, holders: ['ann'] },
    { name: 'role:dev', rules: 2, denials: 1, holders: ['shop-developers'] },
    { name: 'role:readonly', rules: 0, denials: 0, holders: [] },
    { name: 'role:tenant-admin', rules: 0, denials: 0, holders: ['ann', 'bob'] },
  ]);
});

test('UI-16 groups are the subjects that are no accounts, with where their roles come from', () => {
  const projects = [{ name: 'web', roles: [{ name: 'release', groups: ['ci', 'shop-developers'] }] }];
  expect(groupsOf(readPolicy(text), new Set(['ann']), projects)).toEqual([
    { name: 'ci', roles: ['proj:web:release'], where: ['project web'] },
    { name: 'shop-developers', roles: ['role:dev', 'proj:web:release'], where: ['policy.csv', 'project web'] },
  ]);
});

const known = { subjects: ['ann', 'ci'], roles: ['role:admin', 'role:dev'], objects: ['shop/*', 'prod/*'] };

test('UX-ACC-1 each field of a line has its completions', () => {
  expect(choices('', known).options).toEqual(['p, ', 'g, ']);
  expect(choices('g, a', known)).toEqual({ options: ['ann'], typed: 1 });
  expect(choices('g, ann, role:d', known)).toEqual({ options: ['role:dev'], typed: 6 });
  expect(choices('p, role:dev, app', known).options).toEqual(['applications']);
  expect(choices('p, role:dev, logs, ', known).options).toEqual(['get', '*']);
  expect(choices('p, role:dev, applications, get, s', known).options).toEqual(['shop/*']);
  expect(choices('p, role:dev, applications, get, shop/*, d', known).options).toEqual(['deny']);
  expect(choices('# p, ', known).options).toEqual([]);
});

test('UX-ACC-2 a question is read in both orders of its words', () => {
  const want = { resource: 'applications', action: 'delete', object: 'prod/*' };
  expect(readQuestion('delete applications prod/*')).toEqual(want);
  expect(readQuestion(' applications  delete prod/* ')).toEqual(want);
  expect(readQuestion('delete applications')).toBeUndefined();
});

test('UX-ACC-7 a configuration names the secrets that the form asks for, and where each is stored', () => {
  const text = 'clientSecret: $oidc.okta.clientSecret\nother: $sso:key\nagain: $oidc.okta.clientSecret\nplain: a$\n';
  expect(referencesOf(text)).toEqual(['oidc.okta.clientSecret', 'sso:key']);
  expect(placeOf('oidc.okta.clientSecret')).toEqual({ map: 'argocd-secret', key: 'oidc.okta.clientSecret' });
  expect(placeOf('sso:key')).toEqual({ map: 'secret:sso', key: 'key' });
  expect(placeOf('argocd-secret:key')).toEqual({ map: 'argocd-secret', key: 'key' });
});

test('SEC-H2 the address of a provider is a link only if it is one of http or https', () => {
  expect(webAddress('https://id.example.com/auth?x=1')).toBe('https://id.example.com/auth?x=1');
  for (const bad of ['javascript:alert(1)', 'data:text/html,x', '', 'x', '//x']) expect(webAddress(bad)).toBe('');
});
