import { expect, look, test } from './console';
import { product } from './product';

test('UX-API-8 the documentation is served by the hub, and the search finds a page', async ({ page }) => {
  await page.goto(`${product.url}/docs`);
  await page.getByRole('heading', { name: 'Capstan', level: 1 }).waitFor();
  expect(new URL(page.url()).pathname).toBe('/docs/');
  await look(page, 'docs');
  await page.waitForLoadState('load'); // what listens to the key is there
  await page.keyboard.press('/');
  await page.keyboard.type('roll back');
  await page.getByRole('option').first().waitFor();
  await page.getByRole('option', { name: 'Roll back Syncing applications' }).waitFor();
  await look(page, 'docs-search');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/docs\/.+/);
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'capstan app', exact: true }).click();
  await page.getByRole('heading', { name: 'capstan app sync', exact: true }).waitFor();
  await look(page, 'docs-cli');
  await page.getByRole('link', { name: 'Command line' }).click();
  await page.getByRole('heading', { name: 'Exit codes' }).waitFor();
  await page.getByRole('link', { name: 'HTTP API' }).click();
  await page.getByRole('heading', { name: 'Capstan API v1' }).waitFor();
  await page.getByRole('link', { name: 'Documentation' }).click();
  await page.getByRole('link', { name: 'Console' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
});
