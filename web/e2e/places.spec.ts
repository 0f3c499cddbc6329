import { allow, expect, fact, heading, look, open, openTab, place, row, test } from './console';
import { act, product } from './product';

const { url, manual, bad } = product;

test('UX-APP-1 an application whose repository cannot be read says why', async ({ page }) => {
  await open(page, bad);
  await page.getByRole('alert').first().waitFor();
  await look(page, 'bad');
});

test('UX-NAV-12 the overview says what needs somebody now, and leads there', async ({ page }) => {
  await place(page, 'Overview');
  const needs = page.getByRole('region', { name: 'Needs you now' });
  const item = needs.getByRole('listitem').filter({ has: page.getByRole('link', { name: bad, exact: true }) });
  await item.getByText('Source error').waitFor();
  await page
    .getByRole('region', { name: 'Clusters' })
    .getByRole('link', { name: /in-cluster/ })
    .waitFor();
  await look(page, 'overview');
  await page
    .getByRole('list', { name: 'Applications by health' })
    .getByRole('link', { name: /Unknown/ })
    .click();
  await page.waitForURL(/q=health(:|%3A)unknown/);
  await row(page, bad).waitFor();
  await place(page, 'Overview');
  await item.getByRole('link', { name: bad, exact: true }).click();
  await heading(page, bad);
});

test('UX-ACC-5 the activity is searched by text and result, and a record opens', async ({ page }) => {
  await place(page, 'Activity');
  const records = page.getByRole('table', { name: 'Activity' });
  await records.getByRole('row').nth(2).waitFor();
  await page.getByRole('textbox', { name: 'Search the activity' }).fill('the console story');
  await records.getByRole('button', { name: 'rollback applications' }).waitFor();
  await look(page, 'activity');
  await records.getByRole('button', { name: 'rollback applications' }).click();
  await page.getByRole('dialog').getByText('browser').first().waitFor();
  await page.waitForURL(/record=\d+/);
  await look(page, 'activity-record');
  await page.keyboard.press('Escape');
  await page.getByRole('textbox', { name: 'Search the activity' }).fill('nothing of this kind');
  await page.getByText('Nothing matches the search.').waitFor();
  await page.getByRole('textbox', { name: 'Search the activity' }).fill('');
  await records
    .getByRole('button', { name: /^(create|update) / })
    .first()
    .waitFor();
  await expect(records.getByRole('button', { name: /^stream-/ })).toHaveCount(0);
  await page.getByRole('checkbox', { name: 'Streams' }).click();
  await records
    .getByRole('button', { name: /^stream-begin / })
    .first()
    .waitFor();
});

test('UX-A11-4(part) on a narrow screen the chosen tab and where one is can be read', async ({ page }) => {
  const wide = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`${url}/access?tab=sign-in`);
  const tab = page.getByRole('tab', { selected: true });
  await expect(tab).toBeInViewport({ ratio: 0.99 });
  await page.goto(`${url}/applications/new`);
  const place = await page.locator('.crumbs a').boundingBox();
  const inner = await page.locator('.crumbs [aria-current]').boundingBox();
  expect(place && inner && place.x + place.width <= inner.x).toBe(true);
  if (wide) await page.setViewportSize(wide);
});

test('UX-A11-7 an application that is not there says so', async ({ page }) => {
  allow('status of 404');
  await page.goto(`${url}/applications/argocd/nothing-here`);
  await page.getByRole('alert').waitFor();
  await look(page, 'gone');
  await page.goto(`${url}/no/such/page`);
  await page.getByText('There is no such page.').waitFor();
  await look(page, 'no-page');
  await page.getByRole('link', { name: 'Go to the applications' }).click();
  await heading(page, 'Applications');
  allow();
});

test('UX-OP-10 sync windows show when they open, on the application and its project', async ({ page }) => {
  await act('freeze');
  await open(page, manual);
  await fact(page, 'Sync windows').getByText('Closed').first().waitFor();
  await fact(page, 'Sync windows')
    .getByText(/opens \w+ \d+ \w+, \d\d:\d\d/)
    .waitFor();
  await page.getByRole('button', { name: /^Sync windows/ }).click();
  await page.getByRole('table', { name: 'Sync windows of the application' }).getByText('freeze').waitFor();
  await look(page, 'windows');
  await page.keyboard.press('Escape');
  await place(page, 'Projects');
  await look(page, 'projects');
  await page.getByRole('link', { name: 'default', exact: true }).click();
  await heading(page, 'default');
  await openTab(page, 'Sync windows');
  await page.getByRole('table', { name: 'Sync windows of default' }).getByText('Active', { exact: true }).waitFor();
  await look(page, 'project-windows');
  await act('thaw');
  await page.getByText('No sync windows: its applications may be synchronised at any time.').first().waitFor();
});

test('UI-16 the clusters show their agents', async ({ page }) => {
  await place(page, 'Clusters');
  await page.getByRole('row').filter({ hasText: 'in-cluster' }).getByText('Connected').waitFor();
  await look(page, 'clusters');
});

test('UX-A11-7 enrolment gives commands and waits for the agent', async ({ page }) => {
  await page.getByRole('button', { name: 'Enrol a cluster' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('from-the-console');
  await page.getByRole('button', { name: 'Make a join token' }).click();
  await page.getByText('Waiting for the agent').waitFor();
  await look(page, 'enroll');
  await page.keyboard.press('Escape');
  await page.getByRole('row').filter({ hasText: 'from-the-console' }).getByText('Never connected').waitFor();
});

test('UI-16 the repositories show how their fetch went', async ({ page }) => {
  await place(page, 'Repositories');
  await page.getByText('Successful').first().waitFor();
  await page.getByText('Failed').first().waitFor();
  await look(page, 'repositories');
  await page.getByRole('button', { name: 'Add a repository' }).click();
  await page.getByRole('dialog').getByRole('textbox', { name: 'URL' }).fill('no address');
  allow('status of 4');
  await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('dialog').getByRole('alert').waitFor();
  await look(page, 'repository-wrong');
  await page.keyboard.press('Escape');
  allow();
});

test('CFG-03 a setting that is wrong says where, and one that is right is kept', async ({ page }) => {
  await place(page, 'Settings');
  await page.getByRole('button', { name: 'Set resource.exclusions' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Value' }).fill('- apiGroups: [velero.io]\n  kind: [Backup]\n');
  allow('status of 4');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByRole('alert').getByText('line 2').waitFor();
  await look(page, 'setting-wrong');
  allow();
  await dialog.getByRole('textbox', { name: 'Value' }).fill('- apiGroups: [velero.io]\n  kinds: [Backup]\n');
  await dialog.getByRole('button', { name: 'Check' }).click();
  await dialog.getByText('The value is fine.').waitFor();
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('row').filter({ hasText: 'resource.exclusions' }).getByText('In use').waitFor();
  await look(page, 'settings');
  await page.getByRole('button', { name: 'Edit resource.exclusions' }).click();
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('button', { name: 'Set resource.exclusions' }).waitFor();
});
