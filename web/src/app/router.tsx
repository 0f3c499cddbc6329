import type { QueryClient } from '@tanstack/react-query';
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router';
import { signedOut } from '../api/errors';
import { under } from '../api/root';
import { meQuery } from '../api/session';
import { AccessPage } from '../features/access/access-page';
import { AccountPage } from '../features/account/account-page';
import { ActivityPage } from '../features/activity/activity-page';
import { AppList } from '../features/apps/app-list';
import { AppPage } from '../features/apps/app-page';
import { isArgo } from '../features/apps/argo-address';
import type { Beginning } from '../features/apps/edit/document';
import { listSearch, translated } from '../features/apps/list/search';
import { appSearch } from '../features/apps/search';
import { ClusterList } from '../features/clusters/cluster-list';
import { ClusterPage } from '../features/clusters/cluster-page';
import { DevicePage } from '../features/login/device-page';
import { SetupPage } from '../features/login/setup-page';
import { SignInPage } from '../features/login/sign-in-page';
import { ObjectList } from '../features/objects/object-list';
import { objectSearch } from '../features/objects/search';
import { PlatformPage } from '../features/platform/platform-page';
import { ProjectList } from '../features/projects/project-list';
import { ProjectPage } from '../features/projects/project-page';
import { RepositoryList } from '../features/repositories/repository-list';
import { SettingsPage } from '../features/settings/settings-page';
import { NoPage, Problem } from '../ui/states';
import { Overview } from './overview';
import { Shell } from './shell';

// The editor is large; it is loaded when somebody writes an application.
const CreatePage = lazyRouteComponent(() => import('../features/apps/edit/create-page'));

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
  const person = async ({ location, search }: { location: { href: string }; search?: { tenant?: string } }) => {
    try {
      await queries.ensureQueryData(meQuery);
    } catch (error) {
      const tenant = search?.tenant ? { tenant: search.tenant } : {};
      if (signedOut(error)) throw redirect({ to: '/login', search: { to: location.href, ...tenant } });
      throw error;
    }
  };
  const device = createRoute({
    getParentRoute: () => root,
    path: '/device',
    validateSearch: (s: Record<string, unknown>): { user_code?: string; tenant?: string } =>
      words(s, ['user_code', 'tenant']),
    component: DevicePage,
    beforeLoad: person,
  });
  const shell = createRoute({
    getParentRoute: () => root,
    id: 'shell',
    component: Shell,
    beforeLoad: ({ location }) => person({ location }),
  });
  const home = createRoute({
    getParentRoute: () => shell,
    path: '/',
    beforeLoad: () => {
      throw redirect({ to: '/overview' });
    },
  });
  const overview = createRoute({ getParentRoute: () => shell, path: '/overview', component: Overview });
  const activity = createRoute({
    getParentRoute: () => shell,
    path: '/activity',
    validateSearch: (
      s: Record<string, unknown>,
    ): { q?: string; result?: string; actor?: string; from?: string; to?: string; record?: number } => ({
      ...words(s, ['q', 'result', 'actor', 'from', 'to']),
      ...(typeof s['record'] === 'number' ? { record: s['record'] } : {}),
    }),
    component: ActivityPage,
  });
  const apps = createRoute({
    getParentRoute: () => shell,
    path: '/applications',
    validateSearch: listSearch,
    beforeLoad: ({ location }) => {
      const search = translated(location.search);
      if (search) throw redirect({ to: '/applications', search, replace: true });
    },
    component: AppList,
  });
  const create = createRoute({
    getParentRoute: () => shell,
    path: '/applications/new',
    validateSearch: (s: Record<string, unknown>): Beginning & { show?: string | undefined } =>
      words(s, ['show', 'name', 'project', 'repo', 'path', 'chart', 'revision', 'cluster', 'namespace']),
    component: CreatePage,
  });
  const app = createRoute({
    getParentRoute: () => shell,
    path: '/applications/$namespace/$name',
    validateSearch: appSearch,
    component: AppPage,
    beforeLoad: ({ params, location }) => {
      if (!isArgo(location.search)) return;
      const search = appSearch({ ...location.search });
      throw redirect({ to: '/applications/$namespace/$name', params, search, replace: true });
    },
  });
  // Argo CD's older addresses have no namespace.
  const bare = createRoute({
    getParentRoute: () => shell,
    path: '/applications/$name',
    validateSearch: appSearch,
    beforeLoad: ({ params, location }) => {
      throw redirect({
        to: '/applications/$namespace/$name',
        params: { namespace: 'argocd', name: params.name },
        search: appSearch({ ...location.search }),
        replace: true,
      });
    },
  });
  const clusters = createRoute({
    getParentRoute: () => shell,
    path: '/clusters',
    validateSearch: (s: Record<string, unknown>): { q?: string; state?: string; enroll?: string; pause?: string } =>
      words(s, ['q', 'state', 'enroll', 'pause']),
    component: ClusterList,
  });
  const cluster = createRoute({
    getParentRoute: () => shell,
    path: '/clusters/$name',
    validateSearch: (s: Record<string, unknown>): { tab?: string; ask?: string } => words(s, ['tab', 'ask']),
    component: ClusterPage,
  });
  const repositories = createRoute({
    getParentRoute: () => shell,
    path: '/repositories',
    validateSearch: (s: Record<string, unknown>): { tab?: string; q?: string; edit?: string; remove?: string } =>
      words(s, ['tab', 'q', 'edit', 'remove']),
    component: RepositoryList,
  });
  const resources = createRoute({
    getParentRoute: () => shell,
    path: '/resources',
    validateSearch: objectSearch,
    component: ObjectList,
  });
  const projects = createRoute({
    getParentRoute: () => shell,
    path: '/projects',
    validateSearch: (s: Record<string, unknown>): { q?: string } => words(s, ['q']),
    component: ProjectList,
  });
  const project = createRoute({
    getParentRoute: () => shell,
    path: '/projects/$name',
    validateSearch: (s: Record<string, unknown>): { tab?: string; ask?: string; form?: string } =>
      words(s, ['tab', 'ask', 'form']),
    component: ProjectPage,
  });
  const access = createRoute({
    getParentRoute: () => shell,
    path: '/access',
    validateSearch: (
      s: Record<string, unknown>,
    ): { tab?: string; q?: string; who?: string; member?: string; version?: string } =>
      words(s, ['tab', 'q', 'who', 'member', 'version']),
    component: AccessPage,
  });
  const platform = createRoute({
    getParentRoute: () => shell,
    path: '/platform',
    validateSearch: (s: Record<string, unknown>): { ask?: string; tenant?: string } => words(s, ['ask', 'tenant']),
    component: PlatformPage,
  });
  const settings = createRoute({
    getParentRoute: () => shell,
    path: '/settings',
    validateSearch: (s: Record<string, unknown>): { tab?: string; q?: string; edit?: string } =>
      words(s, ['tab', 'q', 'edit']),
    component: SettingsPage,
  });
  const account = createRoute({
    getParentRoute: () => shell,
    path: '/account',
    validateSearch: (s: Record<string, unknown>): { user?: string } => words(s, ['user']),
    component: AccountPage,
  });
  return createRouter({
    routeTree: root.addChildren([
      signIn,
      setup,
      device,
      shell.addChildren([
        home,
        overview,
        apps,
        create,
        app,
        bare,
        projects,
        project,
        clusters,
        cluster,
        resources,
        repositories,
        activity,
        access,
        settings,
        account,
        platform,
      ]),
    ]),
    basepath: under('/'),
    defaultPreload: 'intent',
    defaultNotFoundComponent: NoPage,
    defaultErrorComponent: ({ error, reset }) => <Problem error={error} retry={reset} />,
  });
}
