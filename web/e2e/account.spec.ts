import { allow, heading, look, session, signIn, test } from './console';
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
  await heading(page, 'Applications');
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
