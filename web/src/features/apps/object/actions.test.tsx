import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Application, Node } from '../../../api/client';
import { effectOf, hindrance, ObjectActions } from './actions';

// The signals of jsdom are none for the Request of Node.
vi.hoisted(() => {
  const Real = globalThis.Request;
  globalThis.Request = class extends Real {
    constructor(input: RequestInfo | URL, init: RequestInit = {}) {
      super(input, { ...init, signal: null });
    }
  };
});

const path = '/api/v1/applications/argocd/shop/resource/actions';
const node = { group: 'apps', version: 'v1', kind: 'Deployment', namespace: 'n', name: 'web', managed: true } as Node;
const app = { metadata: { name: 'shop' }, spec: { project: 'web' } } as Application;
const action = (name: string, more = {}) => ({ name, disabled: false, permitted: true, ...more });
let answers: Record<string, { status: number; body: unknown }>;
let sent: { path: string; query: string; body: string }[];

beforeEach(() => {
  sent = [];
  vi.stubGlobal('matchMedia', (media: string) => ({
    matches: false,
    media,
    addEventListener() {},
    removeEventListener() {},
  }));
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
  vi.stubGlobal('fetch', async (request: Request) => {
    const url = new URL(request.url);
    sent.push({ path: `${request.method} ${url.pathname}`, query: url.search, body: await request.text() });
    const answer = answers[`${request.method} ${url.pathname}`] ?? { status: 404, body: {} };
    return Response.json(answer.body, { status: answer.status });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function show() {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <MantineProvider withCssVariables={false} withGlobalClasses={false} env="test">
      <QueryClientProvider client={queries}>
        <ObjectActions appKey={{ namespace: 'argocd', name: 'shop' }} app={app} node={node} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

test('ACT-01 the actions of an object are offered, and run with their parameters', async () => {
  answers = {
    [`GET ${path}`]: {
      status: 200,
      body: { items: [action('restart'), action('scale', { params: [{ name: 'replicas', default: '1' }] })] },
    },
    [`POST ${path}`]: { status: 200, body: { changes: [] } },
  };
  show();
  fireEvent.change(await screen.findByLabelText('replicas'), { target: { value: '3' } });
  fireEvent.click(screen.getByRole('button', { name: 'scale' }));
  // Nothing is sent before it is confirmed, and the question says what changes.
  await screen.findByText('scale with replicas 3: Deployment web in n.');
  expect(sent.some((s) => s.path.startsWith('POST'))).toBe(false);
  fireEvent.click(screen.getByRole('button', { name: 'Run scale' }));
  await waitFor(() => expect(sent.some((s) => s.path === `POST ${path}`)).toBe(true));
  expect(sent.find((s) => s.path === `GET ${path}`)?.query).toContain('kind=Deployment');
  expect(JSON.parse(sent.find((s) => s.path === `POST ${path}`)?.body ?? '')).toEqual({
    group: 'apps',
    version: 'v1',
    kind: 'Deployment',
    resourceNamespace: 'n',
    resourceName: 'web',
    action: 'scale',
    resourceActionParameters: [{ name: 'replicas', value: '3' }],
  });
});

test('ACT-03 an action that cannot be run says why', async () => {
  answers = {
    [`GET ${path}`]: {
      status: 200,
      body: { items: [action('resume', { disabled: true }), action('abort', { permitted: false })] },
    },
  };
  show();
  await screen.findByText("Not available in the object's current state.");
  const why =
    'You may not run actions on applications of project web. Ask an admin of the tenant for: applications, action/apps/Deployment/abort, web/*.';
  await screen.findByText(why);
  const abort = screen.getByRole('button', { name: 'abort' });
  fireEvent.focus(abort);
  expect((await screen.findByRole('tooltip')).textContent).toBe(why);
  fireEvent.click(abort);
  expect(sent.some((s) => s.path.startsWith('POST'))).toBe(false);
  expect((screen.getByRole('button', { name: 'resume' }) as HTMLButtonElement).disabled).toBe(true);
  expect(hindrance(action('x'), node, 'web')).toBe('');
});

test('an action that fails says why', async () => {
  answers = {
    [`GET ${path}`]: { status: 200, body: { items: [action('restart')] } },
    [`POST ${path}`]: { status: 503, body: { message: 'the connection to its agent was lost' } },
  };
  show();
  fireEvent.click(await screen.findByRole('button', { name: 'restart' }));
  fireEvent.click(await screen.findByRole('button', { name: 'Run restart' }));
  await screen.findByText('The connection to its agent was lost.');
});

test('UX-OP-12 the question before an action says what it changes', () => {
  expect(effectOf(action('restart'), node, {})).toBe(
    'restart: Deployment web in n. Its pods are replaced one after the other, as its update strategy says.',
  );
});
