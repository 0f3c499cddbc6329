import { MantineProvider } from '@mantine/core';
import { Notifications, notifications } from '@mantine/notifications';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { makeQueryClient } from './queries';
import { loadPages, makeRouter } from './router';
import { theme } from './theme';

// The signals of jsdom are none for the Request of Node.
vi.hoisted(() => {
  const Real = globalThis.Request;
  globalThis.Request = class extends Real {
    constructor(input: RequestInfo | URL, init: RequestInit = {}) {
      super(input, { ...init, signal: null });
    }
  };
});

type Answer = { status: number; body: unknown };
let answers: Record<string, Answer>;
let sent: { path: string; query: URLSearchParams; body: string }[];

const me = { username: 'ann', tenant: 'default', permissions: [] };
const refused = { status: 401, body: { code: 'CAP-1401', message: 'you are not signed in' } };

// What is awaited below is what a page shows, and not how long its code takes to be read.
beforeAll(async () => {
  await loadPages();
});

beforeEach(() => {
  sent = [];
  vi.stubGlobal('matchMedia', (media: string) => ({
    matches: false,
    media,
    addEventListener() {},
    removeEventListener() {},
  }));
  vi.stubGlobal('scrollTo', () => {});
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
  vi.stubGlobal(
    'EventSource',
    class {
      addEventListener() {}
      close() {}
    },
  );
  // The client takes fetch when it is called, so the stub stands in for the hub.
  vi.stubGlobal('fetch', async (request: Request) => {
    const at = new URL(request.url);
    const path = `${request.method} ${at.pathname}`;
    sent.push({ path, query: at.searchParams, body: await request.text() });
    const answer = answers[path] ?? { status: 404, body: {} };
    return Response.json(answer.body, { status: answer.status });
  });
});
afterEach(() => {
  cleanup();
  notifications.clean();
  vi.unstubAllGlobals();
});

function show(path: string) {
  window.history.replaceState({}, '', path);
  const queries = makeQueryClient(() => {});
  queries.setDefaultOptions({ queries: { retry: false } });
  render(
    <MantineProvider theme={theme} withCssVariables={false} withGlobalClasses={false} env="test">
      <Notifications />
      <QueryClientProvider client={queries}>
        <RouterProvider router={makeRouter(queries)} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

test('who is not signed in gets the sign-in, and a refusal in words', async () => {
  answers = {
    'GET /api/v1/me': refused,
    'POST /api/v1/login': {
      status: 401,
      body: { code: 'CAP-1401', message: 'the user name or the password is wrong' },
    },
  };
  show('/applications');
  fireEvent.change(await screen.findByLabelText(/User name/), { target: { value: 'ann' } });
  fireEvent.change(screen.getByLabelText(/^Password/), { target: { value: 'not this one' } });
  fireEvent.click(screen.getByRole('button', { name: 'Sign in' }));
  expect((await screen.findByRole('alert')).textContent).toContain('The user name or the password is wrong.');
  const login = sent.find((s) => s.path === 'POST /api/v1/login');
  expect(JSON.parse(login?.body ?? '')).toEqual({ username: 'ann', password: 'not this one' });
});

test('an empty list says how to begin', async () => {
  answers = {
    'GET /api/v1/me': { status: 200, body: me },
    'GET /api/v1/applications': { status: 200, body: { items: [], cursor: '1', metadata: {} } },
  };
  show('/applications');
  await screen.findByText('There are no applications yet.');
});

test('a list that cannot be read says why', async () => {
  answers = {
    'GET /api/v1/me': { status: 200, body: me },
    'GET /api/v1/applications': { status: 503, body: { message: 'the store is away' } },
  };
  show('/applications');
  await screen.findByText('The store is away.');
  await screen.findByRole('button', { name: 'Try again' });
});

test('UX-NAV-1 a filter asks for rows and for numbers, each once, and a wrong one leaves what was shown', async () => {
  const list = { items: [], rows: [], total: 3, facets: [{ field: 'project', values: [{ value: 'p', count: 3 }] }] };
  answers = {
    'GET /api/v1/me': { status: 200, body: me },
    'GET /api/v1/applications': { status: 200, body: { ...list, cursor: '1' } },
  };
  show('/applications');
  await screen.findByText('3 applications');
  const asked = (query: string) =>
    sent
      .filter((s) => s.query.get('query') === query)
      .map((s) => (s.query.has('facets') ? 'numbers' : `rows by ${s.query.get('sort')}`));
  answers['GET /api/v1/applications'] = { status: 200, body: { ...list, total: 2 } };
  fireEvent.change(screen.getByLabelText('Search applications'), { target: { value: 'shop' } });
  await screen.findByText('2 applications');
  expect(asked('shop').sort()).toEqual(['numbers', 'rows by name']);
  expect(window.location.search).toBe('?q=shop');
  answers['GET /api/v1/applications'] = { status: 200, body: { ...list, total: 1 } };
  fireEvent.click(screen.getByRole('button', { name: /^p\s*3$/ }));
  await screen.findByText('1 application');
  expect(asked('shop project:p').sort()).toEqual(['numbers', 'rows by name']);
  answers['GET /api/v1/applications'] = { status: 400, body: { message: 'no such field' } };
  fireEvent.change(screen.getByLabelText('Search applications'), { target: { value: 'wrong:' } });
  await screen.findByText(/No such field/);
  screen.getByText('1 application');
});

test('UX-A11-7 the overview says that all is quiet only when everything was read', async () => {
  const all = { resource: '*', action: '*', all: true, projects: [] };
  const repositories = { status: 503, body: { message: 'the store is away' } };
  answers = {
    'GET /api/v1/me': { status: 200, body: { ...me, permissions: [all] } },
    'GET /api/v1/applications': { status: 200, body: { items: [], rows: [], total: 1, facets: [], cursor: '1' } },
    'GET /api/v1/clusters': { status: 200, body: { items: [] } },
    'GET /api/v1/repositories': repositories,
  };
  show('/overview');
  fireEvent.click(await screen.findByRole('button', { name: 'Try again' }));
  expect(screen.queryByText('All quiet.')).toBeNull();
  answers['GET /api/v1/repositories'] = { status: 200, body: { items: [] } };
  fireEvent.click(await screen.findByRole('button', { name: 'Try again' }));
  await screen.findByText('All quiet.');
});

test('a setting that the hub refuses says where it is wrong, and nothing is lost', async () => {
  const known = [{ map: 'argocd-cm', key: 'resource.exclusions', about: 'Left alone.', sample: '[]', used: true }];
  answers = {
    'GET /api/v1/me': {
      status: 200,
      body: { ...me, permissions: [{ resource: '*', action: '*', all: true, projects: [] }] },
    },
    'GET /api/v1/applications': { status: 200, body: { items: [], cursor: '1', metadata: {} } },
    'GET /api/v1/settings': { status: 200, body: { version: 3, items: [], known } },
    'PATCH /api/v1/settings': {
      status: 400,
      body: { code: 'CAP-1400', message: 'ConfigMap argocd-cm, key resource.exclusions: line 2: it must be a list' },
    },
  };
  show('/settings');
  fireEvent.click(await screen.findByRole('button', { name: 'Set resource.exclusions' }));
  fireEvent.change(await screen.findByLabelText('Value'), { target: { value: '- kinds: A' } });
  fireEvent.click(screen.getByRole('button', { name: 'Save' }));
  expect((await screen.findByRole('alert')).textContent).toContain('line 2');
  const patch = sent.find((s) => s.path === 'PATCH /api/v1/settings');
  expect(JSON.parse(patch?.body ?? '')).toEqual({ values: { 'argocd-cm': { 'resource.exclusions': '- kinds: A' } } });
  expect(screen.getByLabelText<HTMLTextAreaElement>('Value').value).toBe('- kinds: A');
});

test('FT-A5 the list of clusters says how upgrades of agents stand, and why one was taken back', async () => {
  const cluster = {
    connection: 'Connected',
    lastSeen: '2026-01-01T00:00:00Z',
    seq: 1,
    ackedSeq: 1,
    agentVersion: 'v1.2.2',
  };
  const upgrade = { image: 'registry.example.com/agent:v1.2.3', by: 'ann', orderedAt: '2026-01-01T00:00:00Z' };
  answers = {
    'GET /api/v1/me': { status: 200, body: me },
    'GET /api/v1/clusters': {
      status: 200,
      body: {
        items: [
          {
            ...cluster,
            id: '1',
            name: 'edge',
            upgrade: { ...upgrade, phase: 'RolledBack', message: 'it ended three times' },
          },
          { ...cluster, id: '2', name: 'prod', upgrade: { ...upgrade, phase: 'Running', message: '' } },
          { ...cluster, id: '3', name: 'test' },
        ],
      },
    },
  };
  show('/clusters');
  const failed = await screen.findByText('Upgrade was taken back: it ended three times');
  expect(failed.title).toContain('registry.example.com/agent:v1.2.3, ordered by ann');
  screen.getByText('Upgrade is under way');
  expect(screen.getAllByText(/^Upgrade/)).toHaveLength(2);
});

test('UI-18 a setup link says what it is for, and suggests no name that may be taken', async () => {
  const found = { tenant: 'shop', roles: ['tenant-admin'], expiresAt: '2026-01-01T00:00:00Z' };
  answers = { 'POST /api/v1/setup/check': { status: 200, body: { ...found, first: false } } };
  show('/setup#token');
  await screen.findByText(/one more account of the tenant/);
  expect(screen.getByLabelText<HTMLInputElement>(/User name/).value).toBe('');
  cleanup();
  answers = { 'POST /api/v1/setup/check': { status: 200, body: { ...found, first: true } } };
  show('/setup#other');
  await screen.findByText(/the first account of the tenant/);
  expect(screen.getByLabelText<HTMLInputElement>(/User name/).value).toBe('admin');
});

const shop = (capstan: object, status: object = {}) => ({
  metadata: { name: 'shop', namespace: 'argocd', resourceVersion: '1' },
  spec: { project: 'web', source: { repoURL: 'https://git.example.com/shop.git', path: 'deploy' }, destination: {} },
  status: {
    sync: { status: 'OutOfSync', revision: 'bad0000000' },
    health: { status: 'Healthy' },
    ...status,
    capstan: { generation: 1, resources: 1, automation: 'Auto', connection: 'Connected', cluster: 'prod', ...capstan },
  },
});

const paused = {
  automation: 'Paused',
  paused: {
    since: '2026-01-01T00:00:00Z',
    by: 'ann',
    reason: 'checkout is broken',
    revision: 'good000000',
    skipped: 'bad0000000',
    message: 'paused at good0000 since 2026-01-01T00:00:00Z, rolled back by ann because checkout is broken',
  },
  headline: { state: 'Paused' },
};

const page = (app: object, permissions: object[] = [{ resource: '*', action: '*', all: true, projects: [] }]) => ({
  'GET /api/v1/me': { status: 200, body: { ...me, permissions } },
  'GET /api/v1/applications': { status: 200, body: { items: [app], cursor: '1', metadata: {} } },
  'GET /api/v1/applications/argocd/shop': { status: 200, body: app },
  'GET /api/v1/applications/argocd/shop/history': { status: 200, body: { items: [] } },
  'GET /api/v1/applications/argocd/shop/tree': { status: 200, body: { nodes: [], cursor: '1' } },
});

test('ROLL-03 a paused application says where, by whom and why, and can be resumed', async () => {
  answers = { ...page(shop(paused)), 'POST /api/v1/applications/argocd/shop/resume': { status: 200, body: shop({}) } };
  show('/applications/argocd/shop?tab=history');
  await screen.findByText(/rolled back by ann because checkout is broken/);
  expect(screen.queryByText('In sync')).toBeNull();
  fireEvent.click(screen.getByRole('button', { name: 'Resume auto-sync' }));
  await waitFor(() => expect(sent.some((s) => s.path === 'POST /api/v1/applications/argocd/shop/resume')).toBe(true));
});

test('FT-G11 an upgrade of the renderers that pauses an application says what would change, and can be resumed', async () => {
  const renderers = { from: 'helm/3.22.0', to: 'helm/3.23.0', changed: 2, added: 1, removed: 0 };
  const held = { ...paused, paused: { ...paused.paused, by: 'renderer upgrade', reason: undefined, renderers } };
  answers = { ...page(shop(held)), 'POST /api/v1/applications/argocd/shop/resume': { status: 200, body: shop({}) } };
  show('/applications/argocd/shop?tab=history');
  await screen.findByText(/renderers changed from helm\/3.22.0 to helm\/3.23.0.*2 changed, 1 added, 0 removed/);
  expect(screen.queryByText(/rolled back/)).toBeNull();
  fireEvent.click(screen.getByRole('button', { name: 'Resume auto-sync' }));
  await waitFor(() => expect(sent.some((s) => s.path === 'POST /api/v1/applications/argocd/shop/resume')).toBe(true));
});

test('ROLL-03 who may not sync may not resume', async () => {
  answers = page(shop(paused), [{ resource: 'applications', action: 'get', all: true, projects: [] }]);
  show('/applications/argocd/shop?tab=history');
  const button = await screen.findByRole('button', { name: 'Resume auto-sync' });
  expect(button.getAttribute('aria-disabled')).toBe('true');
  fireEvent.click(button);
  expect(sent.some((s) => s.path.endsWith('/resume'))).toBe(false);
});

test('ROLL-03 auto-sync is not resumed while the operation of the rollback runs, and the button says why', async () => {
  const running = { id: '1', kind: 'rollback', phase: 'Running', startedAt: '2026-01-01T00:00:00Z', message: '' };
  answers = page(shop(paused, { operationState: running }));
  show('/applications/argocd/shop?tab=history');
  const button = await screen.findByRole('button', { name: 'Resume auto-sync' });
  expect(button.getAttribute('aria-disabled')).toBe('true');
  fireEvent.click(button);
  expect(sent.some((s) => s.path.endsWith('/resume'))).toBe(false);
  fireEvent.focus(button);
  await screen.findByText('An operation is in progress. Auto-sync can be resumed when it has ended.');
});

test('an error that no form shows becomes one notification', async () => {
  answers = {
    ...page(shop({})),
    'POST /api/v1/applications/argocd/shop/refresh': {
      status: 503,
      body: { message: 'the store is away', fix: 'try later' },
    },
  };
  show('/applications/argocd/shop?tab=history');
  fireEvent.click(await screen.findByRole('button', { name: 'Refresh' }));
  await screen.findByText('The store is away.');
  screen.getByText('Try later.');
  expect(screen.getAllByText('The store is away.')).toHaveLength(1);
});

test('an error that a form shows is not notified as well', async () => {
  answers = {
    ...page(shop(paused)),
    'POST /api/v1/applications/argocd/shop/resume': { status: 503, body: { message: 'the store is away' } },
  };
  show('/applications/argocd/shop?tab=history');
  fireEvent.click(await screen.findByRole('button', { name: 'Resume auto-sync' }));
  await screen.findByText('The store is away.');
  // A notification would be shown before the error of the mutation is.
  expect(screen.getAllByText('The store is away.')).toHaveLength(1);
});

const readOnly = ['applications', 'projects', 'clusters', 'repositories', 'settings'].map((resource) => ({
  resource,
  action: 'get',
  all: true,
  projects: [],
}));

test('RBAC-13 with the rights of a reader every button that writes is off and names the right', async () => {
  const app = shop(
    { ...paused, awaitsApproval: true },
    { operationState: { id: '1', kind: 'sync', phase: 'Running', startedAt: '2026-01-01T00:00:00Z', message: '' } },
  );
  const known = [{ map: 'argocd-cm', key: 'resource.exclusions', about: 'Left alone.', sample: '[]', used: true }];
  answers = {
    ...page(app, readOnly),
    'GET /api/v1/applications/argocd/shop/history': {
      status: 200,
      body: { items: [2, 1].map((id) => ({ id, revision: `${id}badbadbad`, deployedAt: '2026-03-02T10:00:00Z' })) },
    },
    'GET /api/v1/clusters': { status: 200, body: { items: [] } },
    'GET /api/v1/repositories': { status: 200, body: { items: [] } },
    'GET /api/v1/settings': { status: 200, body: { version: 3, items: [], known } },
  };
  const expected: Record<string, Record<string, [string, string]>> = {
    '/applications/argocd/shop?tab=history': {
      Sync: ['sync applications of project web', 'applications, sync, web/*'],
      Terminate: ['sync applications of project web', 'applications, sync, web/*'],
      'Resume auto-sync': ['sync applications of project web', 'applications, sync, web/*'],
      'Approve deletion': ['change applications of project web', 'applications, update, web/*'],
      'Roll back to this': ['roll back applications of project web', 'applications, rollback, web/*'],
    },
    '/clusters': { 'Enrol a cluster': ['create clusters', 'clusters, create, *'] },
    '/repositories': { 'Add a repository': ['create repositories', 'repositories, create, *'] },
    '/settings': { 'Set resource.exclusions': ['change settings', 'settings, update, *'] },
  };
  for (const [path, buttons] of Object.entries(expected)) {
    show(path);
    for (const [name, [may, right]] of Object.entries(buttons)) {
      const button = await screen.findByRole('button', { name });
      expect(button.getAttribute('aria-disabled'), name).toBe('true');
      fireEvent.focus(button);
      expect((await screen.findByRole('tooltip')).textContent).toBe(
        `You may not ${may}. Ask an admin of the tenant for: ${right}.`,
      );
      fireEvent.blur(button);
      await waitFor(() => expect(screen.queryByRole('tooltip')).toBeNull());
      fireEvent.click(button);
      expect(screen.queryByRole('dialog')).toBeNull();
    }
    cleanup();
  }
  expect(sent.filter((s) => !s.path.startsWith('GET'))).toEqual([]);
});

test('RBAC-13 who may not see a page reads which right is missing and whom to ask, without the look of a fault', async () => {
  const body = {
    code: 'CAP-1403',
    message: 'clusters: you have no right to see this',
    fix: 'ask an admin of the tenant for: clusters, get, *',
  };
  answers = { ...page(shop({}), readOnly), 'GET /api/v1/clusters': { status: 403, body } };
  show('/clusters');
  await screen.findByText('Clusters: you have no right to see this.');
  screen.getByText('Ask an admin of the tenant for: clusters, get, *.');
  expect(screen.getByRole('alert').querySelector('svg')).toBeNull();
  expect(screen.queryByRole('button', { name: 'Try again' })).toBeNull();
});

test('HLT-04 an application with a failed sync does not read as healthy', async () => {
  answers = page(
    shop(
      { headline: { state: 'SyncFailed', message: 'Service shop/web: port is out of range' } },
      {
        operationState: { id: '1', kind: 'sync', phase: 'Failed', startedAt: '2026-01-01T00:00:00Z', message: 'x' },
      },
    ),
  );
  show('/applications/argocd/shop?tab=history');
  await screen.findByText('Service shop/web: port is out of range.');
  expect(screen.getAllByText('Sync failed').length).toBeGreaterThan(0);
  expect(screen.getByText('Healthy').closest('[data-stale]')?.getAttribute('data-stale')).toBe('true');
});

test('UX-NAV-10 the focus goes to the heading of the page that was opened', async () => {
  answers = { ...page(shop({})), 'GET /api/v1/clusters': { status: 200, body: { items: [] } } };
  show('/applications');
  fireEvent.click(await screen.findByRole('link', { name: 'Clusters' }));
  await waitFor(() => expect(document.activeElement?.textContent).toBe('Clusters'));
  expect(document.activeElement?.tagName).toBe('H2');
});

test('UX-A11-5 the language is chosen on the sign-in page and in the menu of the account', async () => {
  answers = { 'GET /api/v1/me': refused };
  show('/login');
  await screen.findByRole('group', { name: 'Language' });
  screen.getByRole('button', { name: '日本語' });
  cleanup();
  answers = page(shop({}));
  show('/clusters');
  fireEvent.click(await screen.findByRole('button', { name: 'Account' }));
  await screen.findByRole('menuitemradio', { name: '日本語' });
});

const everything = { resource: '*', action: '*', all: true, projects: [] };
const fleet = {
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'ApplicationSet',
  metadata: { name: 'fleet', namespace: 'argocd', resourceVersion: '7' },
  spec: { generators: [{ clusters: {} }] },
  status: {
    health: { status: 'Degraded', message: 'a generator failed' },
    resourcesCount: 3,
    resources: [{ version: 'v1alpha1', kind: 'Application', namespace: 'argocd', name: 'fleet-a', status: 'Synced' }],
    conditions: [{ type: 'ErrorOccurred', status: 'True', reason: 'x', message: 'the repository cannot be read' }],
    capstan: { id: 'x', project: 'default', generation: 1 },
  },
};

test('ASET-23(part) the list of ApplicationSets says what is wrong with each, and that there is none', async () => {
  answers = {
    'GET /api/v1/me': { status: 200, body: { ...me, permissions: [everything] } },
    'GET /api/v1/applicationsets': { status: 200, body: { items: [fleet], total: 1, cursor: '1', metadata: {} } },
  };
  show('/applicationsets');
  await screen.findByText('1 ApplicationSet');
  screen.getByText('The repository cannot be read.');
  const link = screen.getByRole<HTMLAnchorElement>('link', { name: 'fleet' });
  expect(link.getAttribute('href')).toBe('/applicationsets/argocd/fleet');
  fireEvent.click(screen.getByText('Tiles'));
  await screen.findByText('3 applications');
  answers['GET /api/v1/applicationsets'] = { status: 200, body: { items: [], total: 0, cursor: '1', metadata: {} } };
  fireEvent.change(screen.getByLabelText('Search ApplicationSets'), { target: { value: 'none' } });
  await screen.findByText('No ApplicationSet matches the search.');
});

test('ASET-23(part) consent to a held deletion is for the list that is shown, and takes the name of the set', async () => {
  const held = {
    digest: 'd1',
    since: '2026-01-01T00:00:00Z',
    applications: ['argocd/fleet-a'],
    count: 1,
    of: 3,
    limit: 0,
  };
  const status = { ...fleet.status, capstan: { ...fleet.status.capstan, held } };
  answers = {
    'GET /api/v1/me': { status: 200, body: { ...me, permissions: [everything] } },
    'GET /api/v1/applicationsets/argocd/fleet': { status: 200, body: { ...fleet, status } },
    'POST /api/v1/applicationsets/argocd/fleet/approve': { status: 202, body: fleet },
  };
  show('/applicationsets/argocd/fleet');
  await screen.findByText('1 of 3 applications would be deleted, and wait for consent');
  fireEvent.click(screen.getByRole('button', { name: 'Delete them …' }));
  const run = await screen.findByRole<HTMLButtonElement>('button', { name: 'Delete 1 application' });
  expect(run.disabled).toBe(true);
  fireEvent.change(screen.getByLabelText('Type fleet to go on'), { target: { value: 'fleet' } });
  answers['GET /api/v1/applicationsets/argocd/fleet'] = { status: 200, body: fleet };
  fireEvent.click(run);
  await waitFor(() => expect(screen.queryByText(/wait for consent/)).toBeNull());
  const sentBody = sent.find((s) => s.path === 'POST /api/v1/applicationsets/argocd/fleet/approve')?.body;
  expect(JSON.parse(sentBody ?? '')).toEqual({ digest: 'd1' });
});

test('UX-PRO-4(part) a set is saved after a preview, and with deletions after a question', async () => {
  const item = (name: string, action: string) => ({ namespace: 'argocd', name, action });
  const counts = { create: 1, update: 0, delete: 1, unchanged: 0, problems: 0, held: 0 };
  answers = {
    'GET /api/v1/me': { status: 200, body: { ...me, permissions: [everything] } },
    'POST /api/v1/applicationsets/generate': {
      status: 200,
      body: { exists: true, items: [item('new', 'create'), item('old', 'delete')], applications: [], counts },
    },
    'POST /api/v1/applicationsets': { status: 201, body: fleet },
    'GET /api/v1/applicationsets/argocd/fleet': { status: 200, body: fleet },
  };
  show('/applicationsets/new');
  const create = await screen.findByRole('button', { name: 'Create' });
  expect(create.getAttribute('aria-disabled')).toBe('true');
  fireEvent.click(screen.getAllByRole('button', { name: 'Preview' }).at(-1) ?? create);
  await screen.findByText('1 created, 0 changed, 1 deleted');
  expect(sent.some((s) => s.path === 'POST /api/v1/applicationsets')).toBe(false);
  fireEvent.click(screen.getByRole('button', { name: 'Create' }));
  await screen.findByText('None of the applications that there are stays.');
  const run = screen.getByRole<HTMLButtonElement>('button', { name: 'Save and delete' });
  expect(run.disabled).toBe(true);
  fireEvent.change(screen.getByLabelText('Type fleet to go on'), { target: { value: 'fleet' } });
  fireEvent.click(run);
  await waitFor(() => expect(window.location.pathname).toBe('/applicationsets/argocd/fleet'));
  const made: unknown = JSON.parse(sent.find((s) => s.path === 'POST /api/v1/applicationsets')?.body ?? '');
  expect(made).toMatchObject({ kind: 'ApplicationSet', metadata: { name: 'fleet' } });
});
