import type { Page } from '@playwright/test';
import { allow, expect, fact, heading, mark, notReloaded, open, place, signIn, test } from './console';
import { act, product } from './product';

// Run by integration/tests/rootpath: a reverse proxy passes one path to the hub,
// which signs people in by OpenID Connect and SAML.
const { url, app, user, password } = product;
const path = new URL(url).pathname;

const signOut = async (page: Page) => {
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
};

/** The addresses that a page has asked its own host for, from now on. */
function asked(page: Page): string[] {
  const all: string[] = [];
  page.on('request', (r) => {
    const address = new URL(r.url());
    if (address.host === new URL(url).host) all.push(address.pathname);
  });
  return all;
}

let requests: string[] = [];

test('API-01 UI-18 the address without a page leads to the sign-in, and that to the page which was asked for', async ({
  page,
}) => {
  allow('Failed to load resource'); // nobody is signed in
  requests = asked(page);
  await page.goto(url);
  await heading(page, 'Sign in to Capstan');
  expect(new URL(page.url()).pathname).toBe(`${path}/login`);
  await page.goto(`${url}/clusters?q=in`);
  await heading(page, 'Sign in to Capstan');
  await signIn(page, user, password);
  await heading(page, 'Clusters');
  allow();
  expect(page.url()).toBe(`${url}/clusters?q=in`);
});

test('SEC-H4 API-01 the session is a cookie of the path alone', async ({ page }) => {
  const cookies = (await page.context().cookies(`${url}/api`)).filter((c) => c.name.includes('capstan'));
  expect(cookies.map((c) => [c.name, c.path, c.secure, c.httpOnly])).toEqual([
    ['__Secure-capstan_session', path, true, true],
  ]);
  expect(await page.context().cookies(new URL('/other', url).href)).toEqual([]);
});

test('API-01 UX-APP-1 a push appears on the page of an application, live', async ({ page }) => {
  await open(page, app);
  expect(new URL(page.url()).pathname).toBe(`${path}/applications/argocd/${app}`);
  await mark(page);
  const revision = (await act('push')).slice(0, 8);
  await fact(page, 'Drift').getByText(revision).waitFor();
  await fact(page, 'Drift').getByText('In sync').waitFor();
  await notReloaded(page);
});

test('API-01 UI-26 a page that is loaded by its address shows the same, and its lists lead on', async ({ page }) => {
  await page.reload();
  await heading(page, app);
  await page.getByRole('region', { name: 'Resource tree' }).getByText('settings').first().waitFor();
  await place(page, 'Projects');
  await heading(page, 'Projects');
  expect(page.url()).toBe(`${url}/projects`);
  await page.goBack();
  await heading(page, app);
});

test('API-01 UX-API-8 the documentation, the description of the API and the way back', async ({ page }) => {
  await page.getByRole('button', { name: 'Help' }).click();
  await page.getByRole('menuitem', { name: 'Documentation' }).click();
  await page.getByRole('heading', { name: 'Capstan', level: 1 }).waitFor();
  expect(new URL(page.url()).pathname).toBe(`${path}/docs/`);
  await page.waitForLoadState('load'); // what listens to the key is there
  await page.keyboard.press('/');
  await page.keyboard.type('roll back');
  await page.getByRole('option').first().waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('link', { name: 'HTTP API' }).click();
  await page.getByRole('heading', { name: 'Capstan API v1' }).waitFor();
  const description = await page.request.get(new URL('../openapi.yaml', page.url()).href);
  expect(await description.text()).toContain(`- url: ${path}\n`);
  await page.getByRole('link', { name: 'Documentation' }).click();
  await page.getByRole('link', { name: 'Console' }).click();
  await heading(page, 'Overview');
});

test('API-01 AUTH-09 a person signs in and out with an OpenID provider', async ({ page }) => {
  allow('Failed to load resource'); // nobody is signed in for a while; the provider wants a font
  await signOut(page);
  await heading(page, 'Sign in to Capstan');
  await page.goto(`${url}/login?to=/projects`);
  await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
  await page.getByPlaceholder('Enter any login').fill('alice');
  await page.getByPlaceholder('and password').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
  await heading(page, 'Projects');
  expect(page.url()).toBe(`${url}/projects`);
  await signOut(page);
  await page.getByRole('button', { name: 'Yes, sign me out' }).click();
  await heading(page, 'Sign in to Capstan');
  expect(new URL(page.url()).pathname).toBe(`${path}/login`);
});

test('API-01 AUTH-08 a person signs in by SAML', async ({ page }) => {
  await page.goto(`${url}/login?to=/clusters`);
  await page.getByRole('link', { name: 'Sign in with Company' }).click();
  await page.getByLabel('User').fill('ann');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await heading(page, 'Clusters');
  await page.context().clearCookies();
});

test('API-01 a device is approved at the address that it shows', async ({ page }) => {
  const asks = await page.request.post(`${url}/api/v1/device/code`, { form: { client_id: 'capstan' } });
  const device: { verification_uri_complete: string } = await asks.json();
  expect(device.verification_uri_complete.startsWith(`${url}/device?user_code=`)).toBe(true);
  await page.goto(device.verification_uri_complete);
  await heading(page, 'Sign in to Capstan');
  await signIn(page, user, password);
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('denied', { exact: false }).first().waitFor();
  allow();
});

test('API-01 nothing that the pages have asked for is outside of the path', async () => {
  expect(requests.length).toBeGreaterThan(20);
  expect(requests.filter((p) => p !== path && !p.startsWith(`${path}/`))).toEqual([]);
});
