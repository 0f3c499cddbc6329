import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { allow, expect, heading, look, mark, notReloaded, place, row, test } from './console';
import { act, product } from './product';

const { url, app, manual, bad } = product;

const search = 'Search applications';

test('UX-NAV-1 the list shows the applications and follows changes', async ({ page }) => {
  await place(page, 'Applications');
  await row(page, app).getByText('Healthy').waitFor();
  await row(page, app).getByText('In sync').waitFor();
  await page.getByRole('status').getByText('Live').waitFor();
  await mark(page);
  const created = await act('create');
  await row(page, created).getByText('Healthy').waitFor();
  await notReloaded(page);
  await look(page, 'list');
});

test('UX-A11-6 a hub that hangs is noticed, and so is that it goes on', async ({ page }) => {
  allow('Failed to load resource', 'net::');
  await act('hang');
  await page.getByRole('alert').getByText('Reconnecting to the hub').waitFor();
  await page.screenshot({ path: join(product.shots, 'hanging.png') });
  await act('go-on');
  await page.getByRole('status').getByText('Live').waitFor();
  allow();
});

test('UX-NAV-10 the filter is in the address, and an empty result says so', async ({ page }) => {
  await page.getByRole('textbox', { name: 'Search applications' }).fill(app);
  await page.waitForURL(/q=/);
  await page.reload();
  await row(page, app).waitFor();
  await page.getByRole('textbox', { name: 'Search applications' }).fill('no such application');
  await page.getByText('No application matches the filter.').waitFor();
  await look(page, 'list-none');
});

test('UI-02 the list is filtered by facets with counts, by what is excluded and by a query, all of it in the address', async ({
  page,
}) => {
  await page.goto(`${url}/applications`);
  const facets = page.getByRole('complementary', { name: 'Filter applications' });
  const box = page.getByRole('textbox', { name: search });
  await row(page, app).waitFor();
  for (const name of [
    'Health',
    'Drift',
    'Last operation',
    'Automation',
    'Cluster',
    'Project',
    'Namespace',
    'Repository',
    'Target revision',
  ]) {
    await facets.getByRole('region', { name, exact: true }).waitFor();
  }
  const automation = facets.getByRole('region', { name: 'Automation' });
  // Other tests have left applications here: the number beside a value is that of the list.
  const counted = automation.getByRole('button', { name: /^Manual \d+$/ });
  await counted.click();
  await page.waitForURL(/q=auto(:|%3A)manual/);
  await row(page, manual).waitFor();
  await expect(row(page, app)).toHaveCount(0);
  await expect(async () => {
    const n = Number(/\d+/.exec(await counted.innerText())?.[0]);
    await expect(page.getByText(`${n} application${n === 1 ? '' : 's'}`, { exact: true })).toBeVisible({
      timeout: 500,
    });
  }).toPass();
  // A value of the same field is an alternative, and keeps its number.
  await automation.getByRole('button', { name: /^Automatic \d+$/ }).click();
  await row(page, app).waitFor();
  await page.goBack();
  await expect(row(page, app)).toHaveCount(0);
  await automation.getByRole('button', { name: 'Exclude manual of Automation' }).click();
  await row(page, app).waitFor();
  await expect(row(page, manual)).toHaveCount(0);
  await expect(box).toHaveValue('-auto:manual');
  await box.fill(`name:${manual},${bad} -health:healthy`);
  await row(page, bad).waitFor();
  await expect(row(page, manual)).toHaveCount(0);
  allow('status of 400');
  await box.fill('colour:red');
  await page.getByText(/At character 1 of the query: there is no field/).waitFor();
  await row(page, bad).waitFor();
  await look(page, 'list-wrong-query');
  await page.getByRole('button', { name: 'Clear the filter' }).click();
  await row(page, app).waitFor();
  allow(); // until here, each change of an application asks again
  // The address of Argo CD's list means the same.
  await page.goto(`${url}/applications?proj=default&sync=Synced&search=${manual}&autoSync=Disabled`);
  await row(page, manual).waitFor();
  await expect(box).toHaveValue(`${manual} project:default sync:Synced auto:manual,paused`);
});

test('UI-01 the list is a table that is sorted, tiles and a summary, with favourites, columns and saved views', async ({
  page,
}) => {
  await page.goto(`${url}/applications?q=console-`);
  await row(page, app).waitFor();
  await page.getByRole('button', { name: 'Name', exact: true }).click();
  await page.waitForURL(/sort=-name/);
  const names = () => page.locator('[data-index] .name-cell a').allInnerTexts();
  await expect.poll(async () => (await names()).join()).toBe([...(await names())].sort().reverse().join());
  await page.getByRole('button', { name: 'Health', exact: true }).click();
  await page.waitForURL(/sort=-health/);
  await expect.poll(async () => (await names())[0]).toBe(bad);
  // Favourites stay after the page is loaded again.
  await page.getByRole('button', { name: `Favourite ${manual}` }).click();
  await page.reload();
  await page.getByRole('navigation', { name: 'Views' }).getByRole('button', { name: 'Favourites 1' }).click();
  await row(page, manual).waitFor();
  await expect(row(page, app)).toHaveCount(0);
  await page.getByRole('navigation', { name: 'Views' }).getByRole('button', { name: /^All/ }).click();
  // A regular expression.
  await page.getByRole('textbox', { name: search }).fill('^console-(man|ba)');
  await page.getByRole('button', { name: 'Regular expression' }).click();
  await row(page, manual).waitFor();
  await row(page, bad).waitFor();
  await expect(row(page, app)).toHaveCount(0);
  // What is on the screen is saved, and opened again.
  await page.getByRole('button', { name: 'Save view' }).click();
  await page.getByRole('textbox', { name: 'Name of the view' }).fill('Two of them');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('button', { name: /^All/ }).click();
  await row(page, app).waitFor();
  await page.getByRole('button', { name: 'Two of them', exact: true }).click();
  await expect(row(page, app)).toHaveCount(0);
  await look(page, 'list-view');
  await page.getByRole('button', { name: 'Forget the view Two of them' }).click();
  await page.getByRole('button', { name: /^All/ }).click();
  // Columns.
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('checkbox', { name: 'Destination' }).uncheck();
  await page.getByRole('checkbox', { name: 'Repository' }).check();
  await page.getByRole('dialog', { name: 'Columns' }).getByText('50', { exact: true }).click();
  await look(page, 'list-columns');
  await page.keyboard.press('Escape');
  await page.reload();
  await page.getByRole('columnheader', { name: 'Repository' }).waitFor();
  await expect(page.getByRole('columnheader', { name: 'Destination' })).toHaveCount(0);
  // Tiles and numbers.
  await page.getByText('Tiles', { exact: true }).click();
  await page.waitForURL(/view=tiles/);
  await page
    .getByRole('listitem')
    .filter({ has: page.getByRole('link', { name: app, exact: true }) })
    .getByText('Healthy')
    .waitFor();
  await look(page, 'list-tiles');
  await page.getByText('Summary', { exact: true }).click();
  const health = page.getByRole('region', { name: 'Applications in numbers' }).getByRole('region', { name: 'Health' });
  await health.getByRole('img', { name: 'Health' }).waitFor();
  await look(page, 'list-summary');
  await health.getByRole('button', { name: /^Unknown/ }).click();
  await page.waitForURL(/q=health(:|%3A)unknown/);
  await row(page, bad).waitFor();
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('checkbox', { name: 'Destination' }).check();
  await page.keyboard.press('Escape');
});

/** Has something done to the applications that are chosen, after its plan was read. */
async function doToThem(page: Page, action: string, plan: string, confirm: string) {
  await page
    .getByRole('region', { name: 'Do to the selected applications' })
    .getByRole('button', { name: action, exact: true })
    .click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText(plan).first().waitFor();
  if (action === 'Delete') await dialog.getByRole('textbox', { name: 'Type 1 to go on' }).fill('1');
  await dialog.getByRole('button', { name: confirm, exact: true }).click();
  await dialog.getByText('All are done.').waitFor();
  await page.waitForURL(/bulk=/);
}

test('UI-03 UX-NAV-11(part) many are refreshed, paused, resumed and deleted at once, by filter or one by one', async ({
  page,
}) => {
  await page.goto(`${url}/applications?q=name:${app},${manual},console-new`);
  await row(page, app).waitFor();
  await page.getByRole('checkbox', { name: 'Select all 3 that match' }).check();
  await page.getByText('All 3 that match').waitFor();
  await look(page, 'list-selected');
  await page
    .getByRole('region', { name: 'Do to the selected applications' })
    .getByRole('button', { name: 'Refresh' })
    .click();
  await page.getByRole('dialog').getByText('will be refreshed').waitFor();
  await look(page, 'list-plan');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await doToThem(page, 'Refresh', 'will be refreshed', 'Refresh 3 applications');
  await look(page, 'list-progress');
  // The progress is an address of its own.
  await page.reload();
  await page.getByRole('dialog').getByText('All are done.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  for (const action of ['Pause', 'Resume']) {
    await page.goto(`${url}/applications?q=auto:${action === 'Pause' ? 'auto' : 'manual'}%20name:${app},console-new`);
    for (const name of [app, 'console-new'])
      await page.getByRole('checkbox', { name: `Select ${name}`, exact: true }).check();
    await page.getByText('2 selected').waitFor();
    await doToThem(page, action, `will be ${action.toLowerCase()}d`, `${action} 2 applications`);
    await page.keyboard.press('Escape');
    await page.getByText('No application matches the filter.').waitFor();
  }
  await page.goto(`${url}/applications?q=name:console-new`);
  await page.getByRole('checkbox', { name: 'Select console-new' }).check();
  await doToThem(page, 'Delete', 'will be deleted', 'Delete 1 application');
  await page.keyboard.press('Escape');
  await page.getByText('No application matches the filter.').waitFor();
  await page.goto(`${url}/activity`);
  await page
    .getByRole('table', { name: 'Activity' })
    .getByRole('button', { name: 'bulk delete applications' })
    .waitFor();
});

test('UX-NAV-8 the list is gone through by keyboard alone', async ({ page }) => {
  await page.goto(`${url}/applications`);
  await row(page, app).waitFor();
  await page.keyboard.press('/');
  await expect(page.getByRole('textbox', { name: search })).toBeFocused();
  await page.keyboard.type('console-');
  await page.waitForURL(/q=console-/);
  await page.getByRole('region', { name: 'Applications' }).focus();
  await page.keyboard.press('ArrowDown');
  await expect(page.locator('[data-index="0"] .name-cell a')).toBeFocused();
  await page.keyboard.press('j');
  await expect(page.locator('[data-index="1"] .name-cell a')).toBeFocused();
  await page.keyboard.press('End');
  await page.keyboard.press('Home');
  await expect(page.locator('[data-index="0"] .name-cell a')).toBeFocused();
  const name = await page.locator('[data-index="0"] .name-cell a').innerText();
  await page.keyboard.press('Enter');
  await heading(page, name);
  await page.goBack();
  await row(page, app).waitFor();
});

test('UX-NAV-7(part) the palette finds pages, and applications at the hub, by keyboard alone', async ({ page }) => {
  await page.goto(`${url}/overview`);
  await heading(page, 'Overview');
  await page.keyboard.press('Control+k');
  const box = page.getByRole('combobox', { name: 'Go to or find' });
  await expect(box).toBeFocused();
  await page.keyboard.type(manual);
  await page.getByRole('option', { name: new RegExp(`^Application ?${manual}`) }).waitFor();
  await look(page, 'palette');
  await page.keyboard.press('Enter');
  await heading(page, manual);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('clus');
  await page.keyboard.press('Enter');
  await heading(page, 'Clusters');
  await page.keyboard.press('Control+k');
  await page.keyboard.type('no such thing');
  await page.getByText('Nothing is called like that.').waitFor();
  await page.keyboard.press('Escape');
  await expect(box).toHaveCount(0);
});

test('UX-A11-4 a phone shows the list without sideways scrolling of the page', async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await page.goto(`${url}/applications`);
  await row(page, app).waitFor();
  await look(page, 'phone-list');
  const wide = await page.evaluate('document.documentElement.scrollWidth > window.innerWidth');
  if (wide) throw new Error('the page is wider than the window');
  await page.setViewportSize({ width: 1280, height: 800 });
});
