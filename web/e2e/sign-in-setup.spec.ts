import type { Page } from '@playwright/test';
import { allow, expect, heading, look, looks, signIn, test } from './console';
import { patience } from './limits';
import { act, product } from './product';

// Run by integration/tests/signin, with an OpenID provider that no tenant has configured yet.
const { url } = product;
const report = (page: Page) => page.getByRole('region', { name: 'Outcome of the test' });
const setUp = (page: Page) => page.getByRole('region', { name: 'Set up single sign-on' });

async function write(page: Page, issuer: string, secret: string) {
  const config = page.getByRole('textbox', { name: 'Configuration of the provider: oidc.config' });
  await config.focus();
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(
    `name: New ID\nissuer: ${issuer}\nclientID: capstan\nclientSecret: $oidc.new.clientSecret\nrequestedScopes: [openid, profile, email, groups]`,
  );
  await page.getByLabel('Secret $oidc.new.clientSecret').fill(secret);
}

/** Begins a test and signs in at the provider, in the tab that it opens. */
async function run(page: Page): Promise<Page> {
  await page.context().clearCookies({ name: /^_/ }); // those of the provider, which knows nobody then
  await page.getByRole('button', { name: 'Test the sign-in' }).click();
  const opened = page.context().waitForEvent('page');
  await page.getByRole('link', { name: 'Go to New ID' }).click();
  const there = await opened;
  there.setDefaultTimeout(patience);
  await there.getByPlaceholder('Enter any login').fill('alice');
  await there.getByPlaceholder('and password').fill('any');
  await there.getByRole('button', { name: 'Sign-in' }).click();
  await there.getByRole('button', { name: 'Continue' }).click();
  await heading(there, 'Access');
  return there;
}

test('UX-ACC-7 a wrong issuer is said with its fix before anybody goes to the provider', async ({ page }) => {
  allow('Failed to load resource'); // nobody is signed in, and later the refusals
  await page.goto(`${url}/login`);
  await signIn(page, product.user, product.password);
  await heading(page, 'Overview');
  await page.goto(`${url}/access?tab=sign-in`);
  await write(page, `${await act('issuer')}/`, 'a client secret');
  await page.getByRole('button', { name: 'Test the sign-in' }).click();
  await setUp(page).getByRole('alert').getByText('another issuer').waitFor();
  await look(page, 'sign-in-setup-issuer');
});

test('UX-ACC-7 a wrong client secret fails the test, and nothing can be stored', async ({ page }) => {
  await write(page, await act('issuer'), 'a wrong secret');
  const there = await run(page);
  await report(there).getByText('Nobody would be signed in').waitFor();
  await there.close();
  await report(page).getByRole('alert').getByText('does not accept the client').waitFor();
  await look(page, 'sign-in-setup-secret');
  const store = page.getByRole('button', { name: 'Store and offer it' });
  await expect(store).toHaveAttribute('aria-disabled', 'true');
});

test('UX-ACC-7 a test shows the claims, the groups and the roles that follow, and signs nobody in', async ({
  page,
}) => {
  const accounts = async () => (await page.request.get(`${url}/api/v1/users`)).text();
  const before = await accounts();
  await write(page, await act('issuer'), 'a client secret');
  const there = await run(page);
  await report(there).getByText('The sign-in works').waitFor();
  await there.close();
  await report(page).getByText('The sign-in works').waitFor();
  const mapped = report(page).getByRole('table', { name: 'What policies may name' });
  await mapped.getByRole('row', { name: /^devs/ }).getByText('proj:team:dev').waitFor();
  const claims = report(page).getByRole('table', { name: 'Claims received' });
  await claims
    .getByRole('row', { name: /^email / })
    .getByText('alice@example.com')
    .waitFor();
  await report(page).getByRole('table', { name: 'Rights that follow' }).getByText('sync (team)').waitFor();
  const me: { username: string } = await (await page.request.get(`${url}/api/v1/me`)).json();
  expect(me.username).toBe(product.user);
  expect(await accounts()).toBe(before);
  const offered: { items: unknown[] } = await (await page.request.get(`${url}/api/v1/login/providers`)).json();
  expect(offered.items).toEqual([]);
  await report(page).scrollIntoViewIfNeeded();
  await look(page, 'sign-in-setup-passed');
  await page.setViewportSize({ width: 390, height: 844 });
  await report(page).scrollIntoViewIfNeeded();
  await look(page, 'sign-in-setup-passed-390');
  expect(await page.getByRole('main').evaluate((m) => m.scrollWidth - m.clientWidth)).toBe(0);
  await page.setViewportSize({ width: 1280, height: 800 });
});

test('UX-ACC-7 what has passed is stored, and a local account still signs in', async ({ page }) => {
  await page.getByRole('button', { name: 'Store and offer it' }).click();
  await page.getByRole('table', { name: 'Identity providers' }).getByText('New ID').waitFor();
  await page.getByRole('note').getByText('Local accounts sign in with their passwords as well.').waitFor();
  await page.context().clearCookies();
  await page.goto(`${url}/login`);
  await page.getByRole('link', { name: 'Sign in with New ID' }).waitFor();
  await signIn(page, product.user, product.password);
  await heading(page, 'Overview');
  allow();
});

test('UX-A11-1 the set-up of single sign-on has no serious barrier', () => {
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
