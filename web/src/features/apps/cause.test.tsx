import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Node } from '../../api/client';
import { Cause, complaints } from './cause';
import type { AppSearch } from './search';

// The signals of jsdom are none for the Request of Node.
vi.hoisted(() => {
  const Real = globalThis.Request;
  globalThis.Request = class extends Real {
    constructor(input: RequestInfo | URL, init: RequestInit = {}) {
      super(input, { ...init, signal: null });
    }
  };
});

const node = (name: string, more: Partial<Node>): Node => ({
  group: '',
  version: 'v1',
  kind: 'Pod',
  namespace: 'web',
  name,
  uid: name,
  managed: false,
  ...more,
});
const broken = node('web-1', { health: 'Degraded', message: 'back-off restarting failed container' });
const cause = {
  class: 'crash-loop',
  title: 'The container crashes again and again',
  message: 'back-off 5m0s restarting failed container=app',
  object: { kind: 'Pod', namespace: 'web', name: 'web-1' },
  path: [],
  container: 'app',
  firstSeen: '2026-01-01T00:00:00Z',
  lastLines: ['one', 'two', 'three', 'FATAL cannot open the database'],
  advice: 'The program ends by itself.',
};

let nodes: Node[];
let causes: object[];
let asked: string[];

beforeEach(() => {
  asked = [];
  vi.stubGlobal('matchMedia', (media: string) => ({
    matches: false,
    media,
    addEventListener() {},
    removeEventListener() {},
  }));
  vi.stubGlobal('fetch', async (request: Request) => {
    const path = new URL(request.url).pathname;
    asked.push(path);
    return Response.json(path.endsWith('/why') ? { healthy: false, summary: '', causes } : { nodes, cursor: '1' });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function show(go: (search: AppSearch) => void = () => {}) {
  render(
    <MantineProvider withCssVariables={false} withGlobalClasses={false} env="test">
      <QueryClientProvider client={new QueryClient()}>
        <Cause appKey={{ namespace: 'argocd', name: 'shop' }} search={{}} go={go} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

test('UX-APP-5(part) the page shows the cause that the hub names, and leads to the object and its log', async () => {
  nodes = [broken, node('web-2', { health: 'Healthy' })];
  causes = [cause];
  const went: AppSearch[] = [];
  show((search) => went.push(search));
  const region = await screen.findByRole('region', { name: 'Cause' });
  for (const text of [
    'Pod web-1: The container crashes again and again since',
    'Back-off 5m0s restarting failed container=app. The program ends by itself.',
    'FATAL cannot open the database',
  ]) {
    expect(region.textContent).toContain(text);
  }
  expect(region.textContent).not.toContain('onetwo');
  fireEvent.click(screen.getByRole('button', { name: 'Pod web-1' }));
  fireEvent.click(screen.getByRole('button', { name: 'Open its logs' }));
  expect(went).toEqual([
    { object: '/Pod/web/web-1' },
    { object: '/Pod/web/web-1', panel: 'logs', log: 'container=app' },
  ]);
});

test('UX-APP-5(part) a cause of what is gone has no panel, and what the page says elsewhere is not said twice', async () => {
  nodes = [node('other', { health: 'Missing' })];
  causes = [
    { ...cause, class: 'paused', title: 'paused' },
    { ...cause, lastLines: undefined },
  ];
  show();
  const region = await screen.findByRole('region', { name: 'Cause' });
  expect(region.textContent).toContain('Pod web-1: The container crashes');
  expect(screen.queryByRole('button')).toBeNull();
});

test('UX-APP-5(part) the cluster is not asked about an application that is well', async () => {
  nodes = [node('web-1', { health: 'Healthy' }), node('old', { health: 'Degraded', orphaned: true })];
  causes = [cause];
  show();
  await waitFor(() => expect(asked.some((path) => path.endsWith('/tree'))).toBe(true));
  expect(asked.some((path) => path.endsWith('/why'))).toBe(false);
  expect(complaints([broken])).not.toBe(complaints([{ ...broken, message: 'another' }]));
});
