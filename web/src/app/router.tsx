import type { QueryClient } from '@tanstack/react-query';
import { createRootRoute, createRoute, createRouter, Outlet, redirect } from '@tanstack/react-router';
import { signedOut } from '../api/errors';
import { meQuery } from '../api/session';
import { AppList } from '../features/apps/app-list';
import { AppPage } from '../features/apps/app-page';
import { ClusterList } from '../features/clusters/cluster-list';
import { SetupPage } from '../features/login/setup-page';
import { SignInPage } from '../features/login/sign-in-page';
import { ProjectList } from '../features/projects/project-list';
import { RepositoryList } from '../features/repositories/repository-list';
import { SettingsPage } from '../features/settings/settings-page';
import { NoPage, Problem } from '../ui/states';
import { Shell } from './shell';

const words = (search: Record<string, unknown>, names: readonly string[]): Record<string, string> => {
  const out: Record<string, string> = {};
  for (const name of names) {
    const value = search[name];
    if (typeof value === 'string' && value) out[name] = value;
  }
  return out;
};

/** The routes. Everything below the shell needs a signed-in person. */
export function makeRouter(queries: QueryClient) {
  const root = createRootRoute({ component: Outlet, errorComponent: ({ error }) => <Problem error={error} /> });
  const signIn = createRoute({
    getParentRoute: () => root,
    path: '/login',
    validateSearch: (s: Record<string, unknown>): { to?: string; tenant?: string; problem?: string } =>
      words(s, ['to', 'tenant', 'problem']),
    component: SignInPage,
  });
  const setup = createRoute({
    getParentRoute: () => root,
    path: '/setup',
    component: SetupPage,
  });
  const shell = createRoute({
    getParentRoute: () => root,
    id: 'shell',
    component: Shell,
    beforeLoad: async ({ location }) => {
      try {
        await queries.ensureQueryData(meQuery);
      } catch (error) {
        if (signedOut(error)) throw redirect({ to: '/login', search: { to: location.href } });
        throw error;
      }
    },
  });
  const home = createRoute({
    getParentRoute: () => shell,
    path: '/',
    beforeLoad: () => {
      throw redirect({ to: '/applications' });
    },
  });
  const apps = createRoute({
    getParentRoute: () => shell,
    path: '/applications',
    validateSearch: (s: Record<string, unknown>): { q?: string; sync?: string; health?: string; project?: string } =>
      words(s, ['q', 'sync', 'health', 'project']),
    component: AppList,
  });
  const app = createRoute({
    getParentRoute: () => shell,
    path: '/applications/$namespace/$name',
    validateSearch: (s: Record<string, unknown>): { tab?: string; view?: string } => words(s, ['tab', 'view']),
    component: AppPage,
  });
  const clusters = createRoute({ getParentRoute: () => shell, path: '/clusters', component: ClusterList });
  const repositories = createRoute({ getParentRoute: () => shell, path: '/repositories', component: RepositoryList });
  const projects = createRoute({ getParentRoute: () => shell, path: '/projects', component: ProjectList });
  const settings = createRoute({ getParentRoute: () => shell, path: '/settings', component: SettingsPage });
  return createRouter({
    routeTree: root.addChildren([
      signIn,
      setup,
      shell.addChildren([home, apps, app, projects, clusters, repositories, settings]),
    ]),
    defaultPreload: 'intent',
    defaultNotFoundComponent: NoPage,
    defaultErrorComponent: ({ error, reset }) => <Problem error={error} retry={reset} />,
  });
}
