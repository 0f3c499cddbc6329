// The list of all objects, and terminals in their containers.
import type { Page } from '@playwright/test';
import { allow, expect, heading, look, looks, makeAccount, place, test } from './console';
import { act, product } from './product';

const list = (page: Page) => page.getByRole('table', { name: 'Resources' });

test('UI-18 the account of this spec', async ({ page }) => {
  await makeAccount(page);
});

test('UI-15 the objects of all applications are listed by window, filtered by the server, and lead to their application', async ({
  page,
}) => {
  const asked: string[] = [];
  page.on('request', (r) => {
    if (r.url().includes('/api/v1/resources')) asked.push(r.url());
  });
  await place(page, 'Resources');
  await list(page).getByRole('link', { name: 'ConfigMap piece-0000' }).waitFor();
  // Only a window of them is asked for and drawn.
  expect(await list(page).getByRole('row').count()).toBeLessThan(80);
  expect(asked.every((url) => Number(new URL(url).searchParams.get('limit')) <= 100)).toBe(true);
  await expect(list(page).getByRole('link', { name: 'ConfigMap piece-0259' })).toHaveCount(0);
  await look(page, 'resources');
  const rows = page.getByRole('region', { name: /^Objects, / });
  await expect(async () => {
    await rows.evaluate((e) => e.scrollTo(0, e.scrollHeight));
    await expect(list(page).getByRole('link', { name: 'Deployment web' }).first()).toBeVisible({ timeout: 500 });
  }).toPass();
  expect(asked.some((url) => new URL(url).searchParams.has('cursor'))).toBe(true);
  // Filters are the server's, and in the address.
  await page.getByRole('textbox', { name: 'Search objects' }).fill('PIECE-025');
  await page.waitForURL(/[?&]q=PIECE-025/);
  await list(page).getByRole('link', { name: 'ConfigMap piece-0259' }).waitFor();
  await page.getByText('10 objects').waitFor();
  expect(
    await list(page)
      .getByRole('link', { name: /^ConfigMap/ })
      .count(),
  ).toBe(10);
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.getByRole('combobox', { name: 'Kind' }).click();
  await page.getByRole('option', { name: /^Deployment \(\d+\)/ }).click();
  await page.waitForURL(/[?&]kind=Deployment/);
  await page.keyboard.press('Escape');
  await expect(list(page).getByRole('link', { name: /^ConfigMap/ })).toHaveCount(0);
  await look(page, 'resources-filtered');
  await page.reload();
  const own = list(page)
    .getByRole('row')
    .filter({ has: page.getByRole('link', { name: 'shell', exact: true }) });
  await own.getByText('In sync').waitFor();
  await own.getByRole('link', { name: 'Deployment web' }).click();
  await page.waitForURL(/\/applications\/argocd\/shell\?.*object=/);
  await page.getByRole('complementary', { name: 'Deployment web' }).waitFor();
  await page.goto(`${product.url}/resources?q=nothing-of-this-name`);
  await page.getByText('No object matches the filters.').waitFor();
  await page.setViewportSize({ width: 390, height: 800 });
  await page.goto(`${product.url}/resources`);
  await list(page).getByRole('link', { name: 'ConfigMap piece-0000' }).waitFor();
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
  await look(page, 'resources-narrow');
  await page.setViewportSize({ width: 1280, height: 800 });
});

test('UI-15 a tenant switches the list off', async ({ page }) => {
  await act('resources-off');
  await page.goto(`${product.url}/resources`);
  await page.getByText('The list of all objects is switched off.').waitFor();
  await expect(page.getByRole('navigation').getByRole('link', { name: 'Resources' })).toHaveCount(0);
  await look(page, 'resources-off');
  await act('resources-on');
  await page.reload();
  await list(page).getByRole('link', { name: 'ConfigMap piece-0000' }).waitFor();
});

test('UX-A11-7(part) the list says that it failed, and that it is forbidden', async ({ page }) => {
  allow('Failed to load resource');
  await page.goto(`${product.url}/resources`);
  for (const [status, body, says] of [
    [503, { message: 'the store is away', fix: 'try later' }, 'The store is away.'],
    [403, { message: 'you may not read this' }, 'You may not read this.'],
  ] as const) {
    await page.route(/\/api\/v1\/resources/, (route) => route.fulfill({ status, json: body }));
    await page.reload();
    await page.getByRole('alert').getByText(says).first().waitFor();
    await look(page, `resources-${status}`);
    await page.unroute(/\/api\/v1\/resources/);
  }
  allow();
});

test('UX-ON-7(part) the page of a cluster shows the policy of its owner', async ({ page }) => {
  await page.goto(`${product.url}/clusters/in-cluster?tab=limits`);
  const policy = page.getByRole('region', { name: 'Policy of the owner' });
  await policy.getByText('Terminals').waitFor();
  const values = await policy.getByRole('definition').allInnerTexts();
  const names = await policy.getByRole('term').allInnerTexts();
  const said = new Map(names.map((name, i) => [name, values[i]]));
  expect(said.get('Terminals')).toBe('permitted');
  expect(said.get('Port-forward')).toBe('not permitted');
  expect(said.get('Prune what Git no longer has')).toBe('permitted');
  await look(page, 'cluster-policy');
});

const panel = (page: Page) => page.getByRole('complementary');
const session = (page: Page) => panel(page).getByRole('status', { name: 'Session' });
const screen = (page: Page) => panel(page).locator('.xterm-rows');

async function openPanel(page: Page, tab: string) {
  const pod = await act('pod');
  const object = encodeURIComponent(`/Pod/shell/${pod}`);
  await page.goto(`${product.url}/applications/argocd/shell?object=${object}&panel=${tab}`);
  await panel(page).getByRole('heading', { name: pod }).waitFor();
}

test('UI-14 without the setting there is no terminal', async ({ page }) => {
  await openPanel(page, 'terminal');
  await panel(page).getByRole('tab', { name: 'Logs' }).waitFor();
  await panel(page).getByRole('tab', { name: 'Summary', selected: true }).waitFor();
  await expect(panel(page).getByRole('tab', { name: 'Terminal' })).toHaveCount(0);
});

test("UI-14 UI-07(part) a shell in a container of one's choice: typing, colours, size, and an end with its code", async ({
  page,
}) => {
  await act('exec-on');
  await openPanel(page, 'terminal');
  await panel(page).getByRole('tab', { name: 'Terminal', selected: true }).waitFor();
  await look(page, 'terminal-before');
  await panel(page).getByRole('combobox', { name: 'Container' }).click();
  await page.getByRole('option', { name: 'side' }).click();
  await panel(page).getByRole('button', { name: 'Open a shell' }).click();
  await session(page)
    .getByText(/sh in side, ends after 8 hours, or 30 minutes without typing/)
    .waitFor();
  await page.keyboard.type('hello');
  await page.keyboard.press('Enter');
  await screen(page).getByText('you said hello').waitFor();
  await page.keyboard.type('colours');
  await page.keyboard.press('Enter');
  const colour = await screen(page)
    .getByText('true colour')
    .evaluate((e) => getComputedStyle(e).color);
  // The exact colour of the program, but for what contrast asks.
  expect(colour).not.toBe(await screen(page).evaluate((e) => getComputedStyle(e).color));
  await look(page, 'terminal');
  await page.setViewportSize({ width: 1000, height: 700 });
  await screen(page)
    .getByText(/\[\d+x\d+\]/)
    .first()
    .waitFor();
  await page.setViewportSize({ width: 390, height: 800 });
  await panel(page).getByRole('button', { name: 'Ctrl-C' }).waitFor();
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
  await look(page, 'terminal-narrow');
  await page.setViewportSize({ width: 1280, height: 800 });
  await panel(page).locator('.xterm-helper-textarea').focus();
  await page.keyboard.type('exit');
  await page.keyboard.press('Enter');
  await session(page).getByText('The shell has ended with code 7.').waitFor();
  await look(page, 'terminal-ended');
});

test('UI-14 copy and paste, and keys that leave the screen', async ({ page }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await panel(page).getByRole('button', { name: 'Open a new session' }).click();
  await session(page)
    .getByText(/Shift-Escape/)
    .waitFor();
  await screen(page).getByText('a new session').waitFor();
  await page.evaluate(() => navigator.clipboard.writeText('pasted text'));
  await panel(page).getByRole('button', { name: 'Paste' }).click();
  await screen(page).getByText('pasted text').waitFor();
  await page.keyboard.press('Enter');
  await screen(page).getByText('you said pasted text').waitFor();
  await screen(page)
    .getByText('you said pasted text')
    .dblclick({ position: { x: 4, y: 8 }, force: true });
  await page.keyboard.press('Control+Shift+C');
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe('you');
  // Escape belongs to the shell, Shift-Escape to the page.
  await page.keyboard.press('Escape');
  await panel(page).waitFor();
  await page.keyboard.press('Shift+Escape');
  await page.waitForFunction(() => !document.activeElement?.closest('.xterm'));
});

test('UI-14 a session that is ended says why, and none begins again by itself', async ({ page }) => {
  let sockets = 0;
  page.on('websocket', () => {
    sockets++;
  });
  await act('exec-off');
  await session(page)
    .getByText(/Terminals are not enabled/)
    .waitFor();
  await panel(page).getByRole('button', { name: 'Open a new session' }).waitFor();
  await look(page, 'terminal-refused');
  expect(sockets).toBe(0);
  // One that the hub refuses at once says why as well.
  allow('WebSocket connection', 'status of 409');
  await panel(page).getByRole('button', { name: 'Open a new session' }).click();
  await session(page)
    .getByText(/Terminals are not enabled.*exec.enabled/)
    .waitFor();
  allow();
});

test('UX-A11-1 nothing of this has a serious barrier', async ({ page }) => {
  await page.goto(`${product.url}/overview`);
  await heading(page, 'Overview');
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
