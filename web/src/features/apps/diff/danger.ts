import { t } from '../../../texts';
import { equal } from '../object/patch';
import { at, list, number, text } from '../object/read';

/** What is known of a change of one object. */
export interface Change {
  group: string;
  kind: string;
  live: unknown;
  desired: unknown;
}

/** Fields that an API server refuses to change, by kind: the object has to be created again. */
const immutable: Readonly<Record<string, readonly string[]>> = {
  'apps/Deployment': ['spec.selector'],
  'apps/ReplicaSet': ['spec.selector'],
  'apps/DaemonSet': ['spec.selector'],
  'apps/StatefulSet': ['spec.selector', 'spec.serviceName', 'spec.volumeClaimTemplates', 'spec.podManagementPolicy'],
  'batch/Job': ['spec.selector', 'spec.template', 'spec.completionMode'],
  '/Service': ['spec.clusterIP'],
  '/PersistentVolumeClaim': ['spec.storageClassName', 'spec.volumeName', 'spec.accessModes'],
  '/Secret': ['type'],
  'storage.k8s.io/StorageClass': ['provisioner', 'parameters', 'reclaimPolicy', 'volumeBindingMode'],
  'rbac.authorization.k8s.io/RoleBinding': ['roleRef'],
  'rbac.authorization.k8s.io/ClusterRoleBinding': ['roleRef'],
};

/** What deleting an object of a kind takes with it. */
const losses: Readonly<Record<string, string>> = {
  '/PersistentVolumeClaim': t('Deletes a volume claim: its data may be lost.'),
  '/PersistentVolume': t('Deletes a volume: its data may be lost.'),
  '/Namespace': t('Deletes a namespace with all that is in it.'),
  'apiextensions.k8s.io/CustomResourceDefinition': t('Deletes a kind with all objects of it, in every namespace.'),
  'apps/StatefulSet': t('Deletes a StatefulSet: its pods end.'),
};

const verbs = (rule: unknown, field: string) => list(rule, field).map((v) => text(v));

/** What a role permits, one entry for each verb of each resource. */
function permits(role: unknown): Set<string> {
  const out = new Set<string>();
  for (const rule of list(role, 'rules')) {
    const resources = [...verbs(rule, 'resources'), ...verbs(rule, 'nonResourceURLs')];
    for (const group of verbs(rule, 'apiGroups').length > 0 ? verbs(rule, 'apiGroups') : ['']) {
      for (const resource of resources)
        for (const verb of verbs(rule, 'verbs')) out.add(`${verb} ${group}/${resource}`);
    }
  }
  return out;
}

function subjects(binding: unknown): Set<string> {
  return new Set(
    list(binding, 'subjects').map((s) =>
      [text(s, 'kind'), text(s, 'namespace'), text(s, 'name')].filter(Boolean).join(' '),
    ),
  );
}

function added(before: Set<string>, after: Set<string>): string[] {
  return [...after].filter((x) => !before.has(x));
}

function widened(c: Change): string[] {
  if (c.group !== 'rbac.authorization.k8s.io') return [];
  if (c.kind === 'Role' || c.kind === 'ClusterRole') {
    const more = added(permits(c.live), permits(c.desired));
    if (more.length === 0) return [];
    const rights = more.slice(0, 3).join(', ');
    return more.length > 3
      ? [t('Grants more rights: {{rights}} and {{n}} more.', { rights, n: more.length - 3 })]
      : [t('Grants more rights: {{rights}}.', { rights })];
  }
  const more = added(subjects(c.live), subjects(c.desired));
  return more.length > 0 ? [t('Grants rights to {{names}}.', { names: more.join(', ') })] : [];
}

/** Why somebody should look at a change before it is applied; the list is empty where nothing is dangerous. */
export function dangers(c: Change): string[] {
  const kind = `${c.group}/${c.kind}`;
  if (!c.desired) return c.live ? [losses[kind] ?? t('Deletes the object.')] : [];
  const out = widened(c);
  if (!c.live) return out;
  for (const field of immutable[kind] ?? []) {
    const wanted = at(c.desired, field);
    if (wanted !== undefined && at(c.live, field) !== undefined && !covered(wanted, at(c.live, field))) {
      out.push(t('Changes {{field}}, which cannot be changed: the object has to be replaced.', { field }));
    }
  }
  const asked = at(c.desired, 'spec.replicas');
  if (asked === 0 && number(c.live, 'spec.replicas', 1) > 0)
    out.push(t('Scales to 0 replicas: nothing runs any more.'));
  return out;
}

/** Whether a live value has all of a wanted one; the API server may have added defaults. */
function covered(wanted: unknown, live: unknown): boolean {
  if (typeof wanted === 'object' && wanted !== null && !Array.isArray(wanted)) {
    return Object.entries(wanted).every(([k, v]) => covered(v, at(live, k) ?? undefined) || equal(v, lookup(live, k)));
  }
  if (Array.isArray(wanted)) {
    return Array.isArray(live) && wanted.length === live.length && wanted.every((w, i) => covered(w, live[i]));
  }
  return equal(wanted, live);
}

/** A value by a key that may have dots in it. */
function lookup(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null
    ? new Map<string, unknown>(Object.entries(value)).get(key)
    : undefined;
}
