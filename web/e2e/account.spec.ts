import type { APIRequestContext } from '@playwright/test';
import { allow, expect, heading, look, session, signIn, test } from './console';
import { product } from './product';

const { url, user, password, setupLink } = product;

test('UX-A11-7 a used-up or wrong setup link says so', async ({ page }) => {
  allow('Failed to load resource');
  await page.goto(`${url}/setup`);
  await page.getByText('This setup link is not complete.').waitFor();
  await page.goto('about:blank');
  await page.goto(`${url}/setup#wrong`);
  await page.getByRole('alert').getByText('The setup link was used already').waitFor();
  await look(page, 'setup-wrong');
  allow();
});

test('UI-18 the setup link makes the first account', async ({ page }) => {
  await page.goto('about:blank'); // a new fragment alone loads nothing
  await page.goto(setupLink);
  await heading(page, 'Welcome to Capstan');
  await look(page, 'setup');
  await page.getByRole('textbox', { name: 'User name' }).fill(user);
  await page.getByLabel('Password', { exact: false }).first().fill(password);
  await page.getByRole('button', { name: 'Create account' }).click();
  await heading(page, 'Overview');
});

test('UI-18 sign out leads to the sign-in', async ({ page }) => {
  allow('status of 401'); // to what was asked for at that moment
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await heading(page, 'Sign in to Capstan');
  await look(page, 'sign-in');
});

test('UX-A11-7 a wrong password is answered with one sentence', async ({ page }) => {
  allow('status of 401');
  await signIn(page, user, `${password}x`);
  const said = await page.getByRole('alert').innerText();
  if (!/password/i.test(said) || said.split('\n').filter(Boolean).length > 3) throw new Error(`it says: ${said}`);
  await look(page, 'sign-in-wrong');
});

test('UX-NAV-10 a page behind the sign-in is where the sign-in leads', async ({ page }) => {
  await page.goto(`${url}/clusters`);
  await heading(page, 'Sign in to Capstan');
  await signIn(page, user, password);
  await heading(page, 'Clusters');
  await page.context().storageState({ path: session() });
  allow();
});

/** Begins the sign-in of a device, as a command line does. */
async function ask(request: APIRequestContext) {
  const answer = await request.post(`${url}/api/v1/device/code`, { form: { client_id: 'capstan' } });
  const begun: { device_code: string; user_code: string; verification_uri_complete: string } = await answer.json();
  return begun;
}

const poll = async (request: APIRequestContext, code: string) => {
  const grant = 'urn:ietf:params:oauth:grant-type:device_code';
  const answer = await request.post(`${url}/api/v1/token`, { form: { grant_type: grant, device_code: code } });
  const body: { access_token?: string; error?: string } = await answer.json();
  return body.access_token ? 'signed in' : body.error;
};

test('UX-CLI-6 a device is signed in by its code, after a sign-in that leads back to the page', async ({
  browser,
  page,
}) => {
  const begun = await ask(page.request);
  const context = await browser.newContext();
  const fresh = await context.newPage();
  await fresh.goto(`${url}/device`);
  await heading(fresh, 'Sign in to Capstan');
  await signIn(fresh, user, password);
  await heading(fresh, 'Sign a device in');
  await look(fresh, 'device');
  await fresh.getByRole('textbox', { name: 'Code' }).fill(begun.user_code.toLowerCase().replace('-', ' '));
  await fresh.getByRole('button', { name: 'Continue' }).click();
  await fresh.getByRole('status', { name: 'Code' }).getByText(begun.user_code).waitFor();
  await look(fresh, 'device-typed');
  expect(await poll(page.request, begun.device_code)).toBe('authorization_pending');
  await fresh.getByRole('button', { name: 'Approve' }).click();
  await fresh.getByText('The device signs in within a few seconds.').waitFor();
  await look(fresh, 'device-approved');
  await context.close();
});

test('SEC-E4 a code that an address brings is compared before it can be approved', async ({ page }) => {
  const begun = await ask(page.request);
  await page.goto(`${url}/device?user_code=${begun.user_code}`);
  const approve = page.getByRole('button', { name: 'Approve' });
  await expect(approve).toBeDisabled();
  await look(page, 'device-compare');
  await page.getByRole('checkbox', { name: /my terminal shows exactly this code/ }).check();
  await expect(approve).toBeEnabled();
  await page.setViewportSize({ width: 390, height: 844 });
  await look(page, 'device-narrow');
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('The device gets nothing.').waitFor();
  expect(await poll(page.request, begun.device_code)).toBe('access_denied');
});

test('SEC-E4 a wrong code says what to do', async ({ page }) => {
  allow('status of 404');
  await page.goto(`${url}/device?user_code=BBBB-BBBB`);
  await page.getByRole('alert').getByText('No device waits with this code').waitFor();
  await page.getByRole('textbox', { name: 'Code' }).waitFor();
  await look(page, 'device-wrong');
  allow();
});

test('UI-17 UX-ACC-6(part) the account page shows who one is, and ends one session and all others', async ({
  browser,
  page,
}) => {
  for (const program of ['first/1', 'second/2', 'third/3']) {
    const other = await browser.newContext({ userAgent: program });
    await other.request.post(`${url}/api/v1/login`, { data: { username: user, password } });
    await other.close();
  }
  await page.goto(`${url}/overview`);
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Your account' }).click();
  await heading(page, 'Your account');
  await expect(page).toHaveTitle(/^Account · /);
  await page.getByRole('region', { name: 'Claims and groups' }).getByText(user, { exact: true }).waitFor();
  const sessions = page.getByRole('table', { name: 'Sessions' });
  await sessions.getByText('This one').waitFor();
  await look(page, 'account');
  await page.getByRole('button', { name: 'End the session of first/1' }).click();
  await expect(sessions.getByText('first/1')).toHaveCount(0);
  await sessions.getByText('second/2').waitFor();
  await page.getByRole('button', { name: 'End all others' }).click();
  await look(page, 'account-end-all');
  await page.getByRole('button', { name: 'End them' }).click();
  await expect(sessions.getByRole('row')).toHaveCount(2);
  await sessions.getByText('This one').waitFor();
});

test('AUTH-04 a token is made on the account page, shown once, and revoked', async ({ page }) => {
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('from-the-console');
  await page.getByLabel('Expires after').selectOption('30d');
  await look(page, 'account-token');
  await page.getByRole('button', { name: 'Create' }).click();
  const token = await page.getByRole('status', { name: 'Token' }).innerText();
  expect(token).toMatch(/^cpt_/);
  await look(page, 'account-token-made');
  const me = await page.request.get(`${url}/api/v1/me`, { headers: { Authorization: `Bearer ${token}`, Cookie: '' } });
  expect(me.status()).toBe(200);
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByText(token)).toHaveCount(0);
  await page.getByRole('row').filter({ hasText: 'from-the-console' }).getByText('Valid').waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  await look(page, 'account-narrow');
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByRole('button', { name: 'Revoke from-the-console' }).click();
  await page.getByRole('button', { name: 'Revoke it' }).click();
  await page.getByText('There is no token.').waitFor();
});

test('SEC-F5 an admin sees and ends the sessions of a member', async ({ browser, page }) => {
  const made = await page.request.post(`${url}/api/v1/users`, {
    headers: { 'X-Capstan-Client': 'console' },
    data: { name: 'member', password, roles: ['readonly'] },
  });
  expect(made.status()).toBe(201);
  const other = await browser.newContext({ userAgent: 'member/1' });
  await other.request.post(`${url}/api/v1/login`, { data: { username: 'member', password } });
  await page.goto(`${url}/account`);
  await page.getByRole('combobox', { name: 'Account' }).selectOption('member');
  await heading(page, 'Account member');
  expect(page.url()).toContain('user=member');
  await page.getByRole('button', { name: 'End the session of member/1' }).click();
  await page.getByText('Nobody is signed in.').waitFor();
  await look(page, 'account-of-a-member');
  expect((await other.request.get(`${url}/api/v1/me`)).status()).toBe(401);
  await other.close();
  await page.request.delete(`${url}/api/v1/users/member`, { headers: { 'X-Capstan-Client': 'console' } });
});
