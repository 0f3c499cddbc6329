import type { Page } from '@playwright/test';
import { allow, expect, heading, look, looks, signIn, test } from './console';
import { product } from './product';

// Run by integration/tests/signin, at a tenant whose policy nobody has changed yet.
const { url } = product;
const history = (page: Page) => page.getByRole('region', { name: 'History' });
const part = (page: Page, name: string) => page.getByRole('radiogroup').getByText(name, { exact: false }).click();
const text = (page: Page, name: string) => page.getByRole('textbox', { name: `Policy: ${name}` });
const save = (page: Page) => page.getByRole('button', { name: 'Save policy' });

const first = `# developers of the shop
p, role:dev, applications, get, shop/*, allow
p, role:dev, applications, sync, shop/*, allow
g, devs, role:dev`;
const second = `# developers of the shop
p, role:dev, applications, get, shop/*, allow
p, role:dev, logs, get, shop/*, allow
g, devs, role:dev`;

async function store(page: Page) {
  await expect(save(page)).toBeEnabled();
  await expect(save(page)).not.toHaveAttribute('aria-disabled', 'true');
  await save(page).click();
  await expect(page.getByRole('button', { name: 'Discard' })).toHaveCount(0);
}

test('UX-ACC-1 the first policy is saved with a test that passes', async ({ page }) => {
  allow('Failed to load resource'); // nobody is signed in yet, and later the refusals
  await page.goto(`${url}/login`);
  await signIn(page, product.user, product.password);
  await heading(page, 'Overview');
  await page.goto(`${url}/access?tab=policy`);
  await text(page, 'Rules').fill(first);
  await part(page, 'Tests');
  await text(page, 'Tests').fill('t, devs, applications, sync, shop/web, allow');
  await page.getByText('1 of 1 pass').waitFor();
  await store(page);
  await history(page).getByRole('button', { name: 'Version 1', exact: true }).waitFor();
});

test('UX-ACC-1 a policy that fails its test cannot be saved until the test is changed with it', async ({ page }) => {
  await part(page, 'Rules');
  await text(page, 'Rules').fill(second);
  await page.getByRole('alert').getByText('devs').first().waitFor();
  await expect(save(page)).toHaveAttribute('aria-disabled', 'true');
  await look(page, 'policy-fails');
  await part(page, 'Tests');
  await text(page, 'Tests').fill('t, devs, applications, sync, shop/web, deny');
  await page.getByText('1 of 1 pass').waitFor();
  await store(page);
  await history(page).getByRole('button', { name: 'Version 2', exact: true }).waitFor();
  await history(page).getByText('policy.csv, policy.tests').first().waitFor();
});

test('UX-ACC-1 a version shows what it changed, and what going back to it would change', async ({ page }) => {
  await history(page).getByRole('button', { name: 'Version 1', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: 'Version 1 of the policy' });
  const back = dialog.getByRole('region', { name: 'What going back changes' });
  await back.getByText('+ p, role:dev, applications, sync, shop/*, allow').waitFor();
  await back.getByText('- p, role:dev, logs, get, shop/*, allow').waitFor();
  await look(page, 'policy-version');
  await page.setViewportSize({ width: 390, height: 844 });
  await look(page, 'policy-version-390');
  expect(await page.evaluate('document.documentElement.scrollWidth <= 390')).toBe(true);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await history(page).scrollIntoViewIfNeeded();
  await look(page, 'policy-history-390');
  const main = page.getByRole('main');
  expect(await main.evaluate((m) => m.scrollWidth - m.clientWidth)).toBe(0);
  await page.setViewportSize({ width: 1280, height: 800 });
  await look(page, 'policy-history');
});

test('UX-ACC-1 going back needs the version that was looked at, and is a version of its own', async ({ page }) => {
  await page.goto(`${url}/access?tab=policy&version=1`);
  const dialog = page.getByRole('dialog', { name: 'Version 1 of the policy' });
  const revert = dialog.getByRole('button', { name: 'Go back to version 1' });
  await revert.waitFor();
  await page.route('**/revert', (route) =>
    route.continue({ headers: { ...route.request().headers(), 'if-match': '"1"' } }),
  ); // as if somebody else had changed the settings meanwhile
  await revert.click();
  await dialog.getByRole('alert').waitFor();
  await look(page, 'policy-revert-stale');
  await page.unroute('**/revert');
  let release: () => void = () => undefined;
  const held = new Promise<void>((go) => {
    release = go;
  });
  await page.route(/\/rbac\/history(\?|$)/, async (route) => {
    await held;
    await route.continue();
  });
  await revert.click();
  // The editor is made anew while the list of versions is still read.
  await expect(text(page, 'Rules')).toContainText('applications, sync, shop/*');
  release();
  await dialog.waitFor({ state: 'detached' });
  await history(page).getByRole('button', { name: 'Version 3', exact: true }).waitFor();
  await history(page).getByText('back to version 1').waitFor();
  await expect(text(page, 'Rules')).toContainText('applications, sync, shop/*');
  await look(page, 'policy-reverted');
  allow();
});

test('UX-A11-1 the page of the policy has no serious barrier', () => {
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
