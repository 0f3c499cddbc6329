import { queryOptions, useQuery } from '@tanstack/react-query';
import { api, body, type Me } from './client';

/** Who is signed in. An error with status 401 means nobody is. */
export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async ({ signal }) => body(await api.GET('/api/v1/me', { signal })),
  staleTime: 60_000,
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

/** Names a right that somebody lacks, in one sentence. */
export function needed(resource: string, action: string, project?: string): string {
  return `You need the right ${resource} ${action}${project ? ` on project ${project}` : ''}.`;
}

/** Which right the caller lacks to do something; empty if they have it. */
export function denied(me: Me | undefined, resource: string, action: string, project?: string): string {
  return may(me, resource, action, project) ? '' : needed(resource, action, project);
}

/** The same of who is signed in. */
export function useDenied(resource: string, action: string, project?: string): string {
  return denied(useQuery(meQuery).data, resource, action, project);
}
