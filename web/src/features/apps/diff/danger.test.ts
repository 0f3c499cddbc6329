import { describe, expect, test } from 'vitest';
import { type Change, dangers } from './danger';

const change = (kind: string, live: unknown, desired: unknown): Change => {
  const [group = '', name = ''] = kind.split('/');
  return { group, kind: name, live, desired };
};
const role = (...verbs: string[]) => ({ rules: [{ apiGroups: [''], resources: ['pods'], verbs }] });

describe('UX-DIF-6 dangerous changes are named', () => {
  const rows: [what: string, change: Change, says: string][] = [
    ['deletes a claim', change('/PersistentVolumeClaim', { spec: {} }, undefined), 'data may be lost'],
    ['deletes a namespace', change('/Namespace', {}, undefined), 'all that is in it'],
    ['deletes a kind', change('apiextensions.k8s.io/CustomResourceDefinition', {}, undefined), 'every namespace'],
    ['deletes anything', change('/ConfigMap', { data: {} }, undefined), 'Deletes the object'],
    [
      'selector',
      change(
        'apps/Deployment',
        { spec: { selector: { matchLabels: { a: '1' } } } },
        { spec: { selector: { matchLabels: { a: '2' } } } },
      ),
      'spec.selector',
    ],
    [
      'template of a Job',
      change('batch/Job', { spec: { template: { spec: { x: 1, d: 2 } } } }, { spec: { template: { spec: { x: 2 } } } }),
      'spec.template',
    ],
    ['to no replicas', change('apps/Deployment', { spec: { replicas: 3 } }, { spec: { replicas: 0 } }), '0 replicas'],
    ['more verbs', change('rbac.authorization.k8s.io/ClusterRole', role('get'), role('get', 'delete')), 'delete /pods'],
    ['a new role', change('rbac.authorization.k8s.io/Role', undefined, role('*')), '* /pods'],
    [
      'a new subject',
      change('rbac.authorization.k8s.io/RoleBinding', { subjects: [] }, { subjects: [{ kind: 'Group', name: 'all' }] }),
      'Group all',
    ],
    [
      'another role',
      change('rbac.authorization.k8s.io/RoleBinding', { roleRef: { name: 'a' } }, { roleRef: { name: 'b' } }),
      'roleRef',
    ],
  ];
  test.each(rows)('%s', (_, c, says) => expect(dangers(c).join(' ')).toContain(says));

  const harmless: [what: string, change: Change][] = [
    ['a new object', change('/ConfigMap', undefined, { data: {} })],
    [
      'another image',
      change(
        'apps/Deployment',
        { spec: { replicas: 2, template: { a: 1 } } },
        { spec: { replicas: 2, template: { a: 2 } } },
      ),
    ],
    ['fewer rights', change('rbac.authorization.k8s.io/Role', role('get', 'list'), role('get'))],
    [
      'defaults of the API server',
      change('batch/Job', { spec: { template: { spec: { x: 1, d: 2 } } } }, { spec: { template: { spec: { x: 1 } } } }),
    ],
    [
      'a selector with a dot in its key',
      change(
        'apps/Deployment',
        { spec: { selector: { matchLabels: { 'a.b/c': '1' } } } },
        { spec: { selector: { matchLabels: { 'a.b/c': '1' } } } },
      ),
    ],
    ['one that was at no replicas', change('apps/Deployment', { spec: { replicas: 0 } }, { spec: { replicas: 0 } })],
  ];
  test.each(harmless)('%s is none', (_, c) => expect(dangers(c)).toEqual([]));
});
