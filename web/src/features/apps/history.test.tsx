import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Application } from '../../api/client';
import { History } from './history';

const entries = {
  items: [
    { id: 2, revision: 'badbadbadbad', deployedAt: '2026-03-02T10:00:00Z' },
    {
      id: 1,
      revision: 'c0ffeec0ffee',
      deployStartedAt: '2026-03-01T10:00:00Z',
      deployedAt: '2026-03-01T10:00:04Z',
      initiatedBy: { username: 'ann' },
      reason: 'release 1',
      source: { repoURL: 'https://git.example.com/shop.git', helm: { parameters: [{ name: 'replicas', value: '3' }] } },
      commit: {
        author: 'Ben <ben@example.com>',
        message: 'Add a checkout\n\nMore text.',
        date: '2026-03-01T09:00:00Z',
      },
    },
  ],
};

let me: object;
const sent: Request[] = [];

beforeEach(() => {
  sent.length = 0;
  me = { permissions: [{ resource: 'applications', action: 'rollback', all: true, projects: [] }] };
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal('fetch', async (r: Request) => {
    sent.push(r.clone());
    if (r.url.endsWith('/me')) return Response.json(me);
    return Response.json(r.method === 'GET' ? entries : {}, { status: r.method === 'GET' ? 200 : 202 });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function show(automation: string) {
  const app = { metadata: { name: 'shop' }, spec: {}, status: { capstan: { automation } } } as unknown as Application;
  render(
    <QueryClientProvider client={new QueryClient()}>
      <MantineProvider env="test">
        <History appKey={{ namespace: 'argocd', name: 'shop' }} app={app} />
      </MantineProvider>
    </QueryClientProvider>,
  );
}

/** Presses the button once the console knows that the caller has the right. */
async function pressRollBack() {
  const button = await screen.findByRole('button', { name: 'Roll back to this' });
  await waitFor(() => expect(button.getAttribute('aria-disabled')).toBeNull());
  fireEvent.click(button);
}

test('ROLL-06 an entry shows author, message, parameters, who deployed it, why and how long it took', async () => {
  show('Manual');
  for (const text of ['Add a checkout', 'Ben <ben@example.com>', 'ann', 'release 1']) await screen.findByText(text);
  await screen.findByText(/value: "3"/);
  await screen.findByText('4 s');
});

test('ROLL-06 before a rollback the dialog says that automation is paused with it', async () => {
  show('Auto');
  await pressRollBack();
  await screen.findByText(
    /Automation is then paused until Git renders something else.*does not have to be switched off/,
  );
  fireEvent.change(screen.getByLabelText('Reason'), { target: { value: 'checkout broken' } });
  fireEvent.click(screen.getByRole('button', { name: 'Roll back' }));
  await waitFor(() => expect(sent.some((r) => r.method === 'POST')).toBe(true));
  const post = sent.find((r) => r.method === 'POST');
  expect(post?.url).toMatch(/\/applications\/argocd\/shop\/rollback$/);
  expect(await post?.json()).toEqual({ id: 1, reason: 'checkout broken', prune: true });
});

test('ROLL-06 without automation it says that the application is paused', async () => {
  show('Manual');
  await pressRollBack();
  await screen.findByText(/The application is then paused until Git renders something else/);
});

test('RBAC-13 who may not roll back reads which right is missing', async () => {
  me = { permissions: [{ resource: 'applications', action: 'sync', all: true, projects: [] }] };
  show('Auto');
  const button = await screen.findByRole('button', { name: 'Roll back to this' });
  fireEvent.focus(button);
  await screen.findByText(/^You may not roll back applications of project default\. Ask /);
  fireEvent.click(button);
  expect(screen.queryByRole('dialog')).toBeNull();
});
