import { mutationOptions, queryOptions, useQuery } from '@tanstack/react-query';
import { t } from '../texts';
import { api, body, type Me } from './client';

/** Who is signed in. An error with status 401 means nobody is. */
export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async ({ signal }) => body(await api.GET('/api/v1/me', { signal })),
  staleTime: 60_000,
});

/** Keeps a language with the account of who is signed in; empty: the browser decides. */
export const languageMutation = mutationOptions({
  mutationFn: async (language: NonNullable<Me['language']>) => {
    await api.PUT('/api/v1/me/language', { body: { language } });
  },
});

/** Whether the caller may do something somewhere; the hub stays the judge. */
export function may(me: Me | undefined, resource: string, action: string, project?: string): boolean {
  return (
    me?.permissions.some(
      (p) =>
        (p.resource === resource || p.resource === '*') &&
        (p.action === action || p.action === '*') &&
        (p.all || (project ? p.projects.includes(project) : p.projects.length > 0)),
    ) ?? false
  );
}

const verbs: Record<string, string> = {
  get: t('see'),
  create: t('create'),
  update: t('change'),
  delete: t('delete'),
  sync: t('sync'),
  rollback: t('roll back'),
  'set-quota': t('set quotas of'),
};
const things: Record<string, string> = {
  accounts: t('accounts'),
  applications: t('applications'),
  applicationsets: t('ApplicationSets'),
  audit: t('the audit log'),
  certificates: t('certificates'),
  clusters: t('clusters'),
  gpgkeys: t('GnuPG keys'),
  logs: t('logs'),
  projects: t('projects'),
  repositories: t('repositories'),
  settings: t('settings'),
  tenants: t('tenants'),
};

/** Says what somebody may not do, and which right to ask whom for. */
export function needed(resource: string, action: string, project?: string): string {
  const verb = verbs[action] ?? (action.startsWith('action/') ? t('run actions on') : action);
  const thing = things[resource] ?? resource;
  const object = !project ? '*' : resource === 'projects' ? project : `${project}/*`;
  const admin = resource === 'tenants' ? t('a platform admin') : t('an admin of the tenant');
  const right = `${resource}, ${action}, ${object}`;
  if (!project)
    return t('You may not {{verb}} {{thing}}. Ask {{admin}} for: {{right}}.', { verb, thing, admin, right });
  if (resource === 'projects')
    return t('You may not {{verb}} project {{project}}. Ask {{admin}} for: {{right}}.', {
      verb,
      project,
      admin,
      right,
    });
  return t('You may not {{verb}} {{thing}} of project {{project}}. Ask {{admin}} for: {{right}}.', {
    verb,
    thing,
    project,
    admin,
    right,
  });
}

/** Which right the caller lacks to do something; empty if they have it. */
export function denied(me: Me | undefined, resource: string, action: string, project?: string): string {
  return may(me, resource, action, project) ? '' : needed(resource, action, project);
}

/** The same of who is signed in. */
export function useDenied(resource: string, action: string, project?: string): string {
  return denied(useQuery(meQuery).data, resource, action, project);
}
