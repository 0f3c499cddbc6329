import type { Page } from '@playwright/test';
import { allow, expect, heading, look, test } from './console';
import { act, product } from './product';

// Run by integration/tests/signin, with an OpenID provider for the tenant default.
const { url } = product;
const button = (page: Page) => page.getByRole('link', { name: 'Sign in with Example ID' });

/** Begins on the sign-in page, signs in and agrees on the provider's own pages, and comes back to a page of the console. */
async function signInThere(page: Page, back: string) {
  await button(page).click();
  await page.getByPlaceholder('Enter any login').fill('alice');
  await page.getByPlaceholder('and password').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
  await heading(page, back);
}

/** Whether the session may sync applications of the project team. */
async function maySync(page: Page): Promise<boolean> {
  const answer = await page.request.get(`${url}/api/v1/me`);
  const me: { permissions: { resource: string; action: string; projects: string[] }[] } = await answer.json();
  return me.permissions.some(
    (p) => p.resource === 'applications' && p.action === 'sync' && p.projects.includes('team'),
  );
}

async function signOut(page: Page) {
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  // The provider asks whether its own session ends as well.
  await page.getByRole('button', { name: 'Yes, sign me out' }).click();
  await heading(page, 'Sign in to Capstan');
}

test('UI-18 the sign-in page has a button for each identity provider', async ({ page }) => {
  allow('Failed to load resource'); // nobody is signed in, later somebody with few rights; the provider wants a font
  await page.goto(`${url}/clusters`);
  await heading(page, 'Sign in to Capstan');
  await button(page).waitFor();
  await look(page, 'sign-in-providers');
});

test('AUTH-09 a person signs in at the provider and comes back to the page that was asked for', async ({ page }) => {
  await signInThere(page, 'Clusters');
  expect(await maySync(page)).toBe(true);
});

test('AUTH-05 a change of groups counts after signing out and in again', async ({ page }) => {
  await act('leave-the-group');
  expect(await maySync(page)).toBe(true);
  await signOut(page);
  await signInThere(page, 'Overview');
  expect(await maySync(page)).toBe(false);
  await act('join-the-group');
  await signOut(page);
});

test('AUTH-09 who declines at the provider reads so', async ({ page }) => {
  await page.context().clearCookies();
  await page.goto(`${url}/login`);
  await button(page).click();
  await page.getByRole('link', { name: 'Cancel' }).click();
  await page.getByRole('alert').getByText('The sign-in was declined at your identity provider.').waitFor();
  await look(page, 'sign-in-declined');
});

test('SEC-E4 an answer that belongs to no sign-in of this browser signs nobody in', async ({ page }) => {
  await page.goto(`${url}/auth/callback?code=x&state=y`);
  await page.getByRole('alert').getByText('was begun in another browser').waitFor();
  expect((await page.request.get(`${url}/api/v1/me`)).status()).toBe(401);
});

test('SEC-H3 the sign-in page shows no text of its address', async ({ page }) => {
  await page.goto(`${url}/login?problem=call%20555&tenant=default`);
  await page.getByRole('alert').getByText('The sign-in did not work.').waitFor();
  await expect(page.getByText('555')).toHaveCount(0);
});

test('AUTH-08 a person signs in by SAML', async ({ page }) => {
  await page.goto(`${url}/login?to=/clusters`);
  await page.getByRole('link', { name: 'Sign in with Company' }).click();
  await page.getByLabel('User').fill('ann');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await heading(page, 'Clusters');
  expect(await maySync(page)).toBe(true);
  await page.context().clearCookies();
});

test('AUTH-08 a person signs in with a name and a password of an LDAP directory', async ({ page }) => {
  await page.goto(`${url}/login?to=/clusters`);
  await page.getByLabel('Account').selectOption({ label: 'Directory' });
  await page.getByLabel('User name').fill('jane');
  await page.getByRole('textbox', { name: 'Password' }).fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await look(page, 'sign-in-directory');
  await page.getByRole('textbox', { name: 'Password' }).fill('jane-password');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await heading(page, 'Clusters');
  expect(await maySync(page)).toBe(true);
  await page.context().clearCookies();
});

test('SEC-E7 a disabled account is out at the next request', async ({ page }) => {
  await page.goto(`${url}/login?to=/clusters`);
  await signInThere(page, 'Clusters');
  await act('disable');
  await page.goto(`${url}/clusters`);
  await heading(page, 'Sign in to Capstan');
  await button(page).click();
  await page.getByRole('alert').getByText('Your account may not sign in here.').waitFor();
  allow();
});
