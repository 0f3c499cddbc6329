import { join } from 'node:path';
import { allow, look, mark, notReloaded, place, row, test } from './console';
import { act, product } from './product';

const { url, app } = product;

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

test('UX-A11-4 a phone shows the list without sideways scrolling of the page', async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await page.goto(`${url}/applications`);
  await row(page, app).waitFor();
  await look(page, 'phone-list');
  const wide = await page.evaluate('document.documentElement.scrollWidth > window.innerWidth');
  if (wide) throw new Error('the page is wider than the window');
  await page.setViewportSize({ width: 1280, height: 800 });
});
