// Access, Platform and projects: their forms and dialogs, and how they look with
// nothing, with much, and without the hub.
import type { Page } from '@playwright/test';
import { allow, expect, heading, look, looks, makeAccount, test } from './console';
import { product } from './product';

const at = (path: string) => `${product.url}${path}`;

test('UI-18 the account of this spec', async ({ page }) => {
  await makeAccount(page);
});

test('UX-ACC-1(part) each part of Access can be seen, and its forms have names', async ({ page }) => {
  const parts: [tab: string, shows: (page: Page) => Promise<unknown>][] = [
    ['members', (p) => p.getByRole('table').getByText(product.user).first().waitFor()],
    ['groups', (p) => p.getByRole('tab', { name: /^Groups/, selected: true }).waitFor()],
    ['roles', (p) => p.getByRole('tabpanel').getByText('role:readonly').first().waitFor()],
    ['policy', (p) => p.getByRole('textbox', { name: 'Policy: Rules', exact: true }).waitFor()],
    ['ask', (p) => p.getByRole('tab', { name: /^Who can/, selected: true }).waitFor()],
    ['sign-in', (p) => p.getByRole('tab', { name: /^Single sign-on/, selected: true }).waitFor()],
  ];
  for (const [tab, shows] of parts) {
    await page.goto(at(`/access?tab=${tab}`));
    await heading(page, 'Access');
    await shows(page);
    await look(page, `access-${tab}`);
    await page.setViewportSize({ width: 390, height: 800 });
    expect(await page.evaluate('document.documentElement.scrollWidth'), tab).toBeLessThanOrEqual(390);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
});

test('UX-ACC-8(part) the dialogs of Platform can be seen and left by keyboard', async ({ page }) => {
  allow('status of 409'); // the tenant in which one is cannot be deleted
  await page.goto(at('/platform'));
  await page.getByRole('table', { name: 'Tenants' }).getByText('default', { exact: true }).waitFor();
  await look(page, 'platform');
  await page.getByRole('button', { name: 'New tenant' }).click();
  await page.getByRole('dialog').getByRole('textbox', { name: 'Name', exact: false }).first().waitFor();
  await look(page, 'platform-new');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  for (const [entry, name] of [
    ['Quotas and usage', 'quotas'],
    ['Suspend', 'suspend'],
    ['Delete', 'delete'],
  ] as const) {
    await page.getByRole('button', { name: 'Actions for default' }).click();
    await page.getByRole('menuitem', { name: entry }).click();
    await page.getByRole('dialog').waitFor();
    await look(page, `platform-${name}`);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  }
  allow();
});

test('UI-16 the form and each part of a project can be seen', async ({ page }) => {
  await page.goto(at('/projects'));
  await page.getByRole('button', { name: 'New project' }).click();
  await page.getByRole('dialog').waitFor();
  await look(page, 'project-new');
  await page.keyboard.press('Escape');
  await page.goto(at('/projects/default?tab=edit'));
  await page.getByRole('textbox', { name: 'Description' }).fill('What everybody may use');
  await look(page, 'project-form');
  await page.goto(at('/projects/default?tab=edit&form=yaml'));
  await page.getByRole('textbox', { name: 'Project as YAML' }).waitFor();
  await look(page, 'project-yaml');
  for (const tab of ['summary', 'roles', 'windows', 'events']) {
    await page.goto(at(`/projects/default?tab=${tab}`));
    await heading(page, 'default');
    await page.getByRole('tab', { selected: true }).waitFor();
    await look(page, `project-${tab}`);
  }
});

/** What a page asks for, how its list is named, and one item of it. */
const lists = [
  {
    path: '/access',
    asks: '/api/v1/users',
    item: (n: number) => ({ name: `person-${n}`, roles: [], disabled: false, createdAt: '2026-01-01T00:00:00Z' }),
    shows: 'person-299',
  },
  {
    path: '/platform',
    asks: '/api/v1/tenants',
    item: (n: number) => ({ id: String(n), name: `tenant-${n}`, createdAt: '2026-01-01T00:00:00Z' }),
    shows: 'tenant-299',
  },
  {
    path: '/projects',
    asks: '/api/v1/projects',
    item: (n: number) => ({
      apiVersion: 'argoproj.io/v1alpha1',
      kind: 'AppProject',
      metadata: { name: `project-${n}` },
      spec: {},
    }),
    shows: 'project-299',
  },
];

test('UX-A11-7(part) these pages show 300 entries, say when the hub is gone, and go on by themselves', async ({
  page,
}) => {
  for (const { path, asks, item, shows } of lists) {
    const pattern = new RegExp(`${asks}(\\?|$)`);
    const items = Array.from({ length: 300 }, (_, n) => item(n));
    await page.route(pattern, (route) => route.fulfill({ json: { items, metadata: {}, cursor: '1' } }));
    await page.goto(at(path));
    await page.getByText(shows, { exact: true }).first().waitFor();
    await look(page, `many${path.replace('/', '-')}`);
    await page.unroute(pattern);
    allow('Failed to load resource');
    await page.route(pattern, (route) => route.abort());
    await page.goto(at(path));
    await page.getByRole('alert').getByText('The hub cannot be reached.').first().waitFor();
    await look(page, `gone${path.replace('/', '-')}`);
    await page.unroute(pattern);
    await page.getByRole('button', { name: 'Try again' }).first().click();
    await page.getByRole('alert').getByText('The hub cannot be reached.').waitFor({ state: 'detached' });
    allow();
  }
});

test('UX-A11-1 nothing of this has a serious barrier', () => {
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
