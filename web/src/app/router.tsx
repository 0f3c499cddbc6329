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
import { AppList } from '../features/apps/app-list';
import { AppPage } from '../features/apps/app-page';
import { isArgo } from '../features/apps/argo-address';
import type { Beginning } from '../features/apps/edit/document';
import { listSearch, translated } from '../features/apps/list/search';
import { appSearch } from '../features/apps/search';
import type { ListSearch, SetSearch } from '../features/apps/sets/search';
import { SignInPage } from '../features/login/sign-in-page';
import { objectSearch } from '../features/objects/search';
import { NoPage, Problem } from '../ui/states';
import { Overview } from './overview';
import { Shell } from './shell';

// What most people see first is in the main bundle. The other pages are loaded when somebody points at
// their links, or goes there.
const CreatePage = lazyRouteComponent(() => import('../features/apps/edit/create-page'));
const AccessPage = lazyRouteComponent(() => import('../features/access/access-page'), 'AccessPage');
const AccountPage = lazyRouteComponent(() => import('../features/account/account-page'), 'AccountPage');
const ActivityPage = lazyRouteComponent(() => import('../features/activity/activity-page'), 'ActivityPage');
const ClusterList = lazyRouteComponent(() => import('../features/clusters/cluster-list'), 'ClusterList');
const ClusterPage = lazyRouteComponent(() => import('../features/clusters/cluster-page'), 'ClusterPage');
const DevicePage = lazyRouteComponent(() => import('../features/login/device-page'), 'DevicePage');
const SetupPage = lazyRouteComponent(() => import('../features/login/setup-page'), 'SetupPage');
const ObjectList = lazyRouteComponent(() => import('../features/objects/object-list'), 'ObjectList');
const PlatformPage = lazyRouteComponent(() => import('../features/platform/platform-page'), 'PlatformPage');
const ProjectList = lazyRouteComponent(() => import('../features/projects/project-list'), 'ProjectList');
const ProjectPage = lazyRouteComponent(() => import('../features/projects/project-page'), 'ProjectPage');
const RepositoryList = lazyRouteComponent(() => import('../features/repositories/repository-list'), 'RepositoryList');
const SetList = lazyRouteComponent(() => import('../features/apps/sets/set-list'), 'SetList');
const SetPage = lazyRouteComponent(() => import('../features/apps/sets/set-page'), 'SetPage');
const NewSet = lazyRouteComponent(() => import('../features/apps/sets/write'), 'NewSet');
const NotificationsPage = lazyRouteComponent(
  () => import('../features/notifications/notifications-page'),
  'NotificationsPage',
);
const SettingsPage = lazyRouteComponent(() => import('../features/settings/settings-page'), 'SettingsPage');

/** Loads all pages, for tests that wait for none. */
export const loadPages = () =>
  Promise.all(
    [
      CreatePage,
      AccessPage,
      AccountPage,
      ActivityPage,
      ClusterList,
      ClusterPage,
      DevicePage,
      SetupPage,
      ObjectList,
      PlatformPage,
      ProjectList,
      ProjectPage,
      RepositoryList,
      SetList,
      SetPage,
      NewSet,
      NotificationsPage,
      SettingsPage,
    ].map((page) => page.preload?.()),
  );

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
    ): {
      q?: string;
      result?: string;
      actor?: string;
      from?: string;
      to?: string;
      streams?: string;
      record?: number;
    } => ({
      ...words(s, ['q', 'result', 'actor', 'from', 'to', 'streams']),
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
  const sets = createRoute({
    getParentRoute: () => shell,
    path: '/applicationsets',
    validateSearch: (s: Record<string, unknown>): ListSearch => words(s, ['q', 'project', 'health', 'view']),
    component: SetList,
  });
  const newSet = createRoute({
    getParentRoute: () => shell,
    path: '/applicationsets/new',
    validateSearch: (s: Record<string, unknown>): SetSearch => words(s, ['show']),
    component: NewSet,
  });
  const set = createRoute({
    getParentRoute: () => shell,
    path: '/applicationsets/$namespace/$name',
    validateSearch: (s: Record<string, unknown>): SetSearch => words(s, ['tab', 'ask', 'view', 'find', 'show']),
    component: SetPage,
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
    ): { tab?: string; q?: string; who?: string; member?: string; version?: string; test?: string } =>
      words(s, ['tab', 'q', 'who', 'member', 'version', 'test']),
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
  const notifications = createRoute({
    getParentRoute: () => shell,
    path: '/settings/notifications',
    validateSearch: (
      s: Record<string, unknown>,
    ): { tab?: string; state?: string; app?: string; delivery?: string; try?: string } =>
      words(s, ['tab', 'state', 'app', 'delivery', 'try']),
    component: NotificationsPage,
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
        sets,
        newSet,
        set,
        projects,
        project,
        clusters,
        cluster,
        resources,
        repositories,
        activity,
        access,
        settings,
        notifications,
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
