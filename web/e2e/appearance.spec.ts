// What operators, tenants and people choose for the console: theme, style sheet,
// banner, links to help, links of applications, and addresses of Argo CD.
import type { Page } from '@playwright/test';
import { allow, expect, fact, heading, look, looks, makeAccount, place, test } from './console';
import { act, product } from './product';

const app = 'themed';
const address = (search = '') => `${product.url}/applications/argocd/${app}${search}`;

const scheme = (page: Page) => page.locator('html').getAttribute('data-mantine-color-scheme');

/** Opens a menu of the frame and returns an entry. */
async function entry(page: Page, menu: string, name: string | RegExp) {
  await page.getByRole('banner').getByRole('button', { name: menu, exact: true }).click();
  return page.getByRole('menu').getByRole(menu === 'Account' ? 'menuitemradio' : 'menuitem', { name });
}

test('UI-18 the account of this spec', async ({ page }) => {
  await makeAccount(page);
});

test('UI-19 the theme is light, dark or that of the system, and the browser keeps it', async ({ page }) => {
  await place(page, 'Applications');
  expect(await scheme(page)).toBe('light');
  await (await entry(page, 'Account', 'Dark')).click();
  await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
  await page.reload();
  await heading(page, 'Applications');
  expect(await scheme(page)).toBe('dark');
  const dark = await entry(page, 'Account', 'Dark');
  await expect(dark).toHaveAttribute('aria-checked', 'true');
  await page.getByRole('menuitemradio', { name: 'Light' }).click();
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.reload();
  await heading(page, 'Applications');
  expect(await scheme(page)).toBe('light');
  await (await entry(page, 'Account', 'As the system')).click();
  await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
  await page.emulateMedia({ colorScheme: 'light' });
  await page.locator('html[data-mantine-color-scheme="light"]').waitFor();
  await page.getByRole('menuitemradio', { name: 'As the system' }).waitFor();
  await look(page, 'theme-menu');
  await page.keyboard.press('Escape');
});

test('UI-20 a tenant chooses a style sheet of the operator, and the console loads no other', async ({ page }) => {
  const border = () =>
    page.getByRole('navigation', { name: 'Main' }).evaluate((e) => getComputedStyle(e).borderRightColor);
  const before = await border();
  await act('style');
  await page.reload();
  await expect.poll(border).toBe('rgb(1, 2, 3)');
  // One of another host is stored, as in Argo CD, and not asked for: the browser would complain.
  await act('style-elsewhere');
  await page.reload();
  await heading(page, 'Applications');
  await expect.poll(border).toBe(before);
  expect(
    await page
      .locator('link[rel="stylesheet"]')
      .evaluateAll((all) => all.map((l) => new URL((l as HTMLLinkElement).href).host)),
  ).toEqual(expect.arrayContaining([new URL(product.url).host]));
  expect(await page.locator('link[href*="evil"]').count()).toBe(0);
  await act('no-style');
});

test('UI-21 the banner has a text, a link, a place, and a button to close it unless it stays', async ({ page }) => {
  const at = (where: string) => page.getByRole('complementary', { name: `Banner at the ${where}` });
  await act('banner-top');
  await page.reload();
  const link = at('top').getByRole('link', { name: 'Maintenance <b>on</b> Sunday', exact: true });
  await expect(link).toHaveAttribute('href', 'https://status.example.com/');
  await expect(at('bottom')).toHaveCount(0);
  await look(page, 'banner');
  await at('top').getByRole('button', { name: 'Close the banner' }).click();
  await expect(at('top')).toHaveCount(0);
  await place(page, 'Clusters');
  await heading(page, 'Clusters');
  await expect(at('top')).toHaveCount(0);
  await act('banner-both');
  await page.reload();
  await at('top').waitFor();
  await at('bottom').waitFor();
  await act('banner-bottom');
  await page.reload();
  await at('bottom').getByText('Maintenance').waitFor();
  await expect(at('top')).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Close the banner' })).toHaveCount(0);
  await act('no-banner');
});

test('UI-22 help leads to the chat and to the command line for each platform', async ({ page }) => {
  await act('help');
  await page.reload();
  await heading(page, 'Clusters');
  const chat = await entry(page, 'Help', 'Ask the platform team');
  await expect(chat).toHaveAttribute('href', 'https://chat.example.com/deployments');
  for (const platform of ['darwin-arm64', 'linux-amd64']) {
    await expect(page.getByRole('menuitem', { name: platform })).toHaveAttribute(
      'href',
      `https://example.com/capstan-${platform}`,
    );
  }
  await expect(page.getByRole('menuitem', { name: 'Documentation' })).toHaveAttribute('href', '/docs');
  await look(page, 'help');
  await page.keyboard.press('Escape');
});

test('UI-25 UI-07(part) applications, projects and objects have the links that the tenant declares', async ({
  page,
}) => {
  await act('links');
  await page.goto(address());
  const runbook = fact(page, 'Links').getByRole('link', { name: 'Runbook' });
  await expect(runbook).toHaveAttribute('href', 'https://wiki.example.com/themed');
  await expect(runbook).toHaveAttribute('rel', /noopener/);
  await runbook.hover();
  await page.getByRole('tooltip').getByText('What to do at night').waitFor();
  await expect(page.getByRole('link', { name: 'Elsewhere' })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'Bad', exact: true })).toHaveCount(0);
  await fact(page, 'Links')
    .getByText(/A link is left out: .*Bad/)
    .waitFor();
  await look(page, 'links-application');
  await page.goto(address(`?object=${encodeURIComponent(`apps/Deployment/${app}/web`)}`));
  const links = page.getByRole('complementary', { name: 'Deployment web' }).getByRole('region', { name: 'Links' });
  await expect(links.getByRole('link', { name: 'Dashboard' })).toHaveAttribute(
    'href',
    'https://metrics.example.com/themed/web',
  );
  await look(page, 'links-object');
  await page.goto(address(`?object=${encodeURIComponent(`/ConfigMap/${app}/settings`)}`));
  await page.getByRole('complementary').getByRole('region', { name: 'Keys' }).waitFor();
  await expect(page.getByRole('link', { name: 'Dashboard' })).toHaveCount(0);
  await page.goto(`${product.url}/projects/default`);
  await expect(page.getByRole('region', { name: 'Links' }).getByRole('link', { name: 'Budget' })).toHaveAttribute(
    'href',
    'https://money.example.com/default',
  );
});

test('UI-26 what is shown of an application is in its address, and addresses of Argo CD lead there', async ({
  page,
}) => {
  // View, filters and object: each changes the address, and the address alone brings it back.
  await page.goto(address());
  await page.getByRole('radiogroup', { name: 'View' }).getByText('List').click();
  await page.waitForURL(/[?&]view=list/);
  await page.getByRole('button', { name: 'Filters' }).click();
  await page.getByRole('combobox', { name: 'Kind' }).click();
  await page.getByRole('option', { name: /^ConfigMap/ }).click();
  await page.waitForURL(/[?&]resource=kind(%3A|:)ConfigMap/);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: `ConfigMap ${app}/settings` }).click();
  await page.waitForURL(/[?&]object=/);
  const kept = page.url();
  await page.goto('about:blank');
  await page.goto(kept);
  await page.getByRole('complementary', { name: 'ConfigMap settings' }).waitFor();
  await page.getByRole('table', { name: 'Objects' }).getByText(`ConfigMap ${app}/settings`).waitFor();
  await expect(page.getByRole('table', { name: 'Objects' }).getByText(`Deployment ${app}/web`)).toHaveCount(0);
  // Argo CD's.
  const node = encodeURIComponent(`apps/Deployment/${app}/web/0`);
  await page.goto(address(`?view=tree&resource=&node=${node}&tab=events`));
  const panel = page.getByRole('complementary', { name: 'Deployment web' });
  await panel.getByRole('tab', { name: 'Events', selected: true }).waitFor();
  await page.waitForURL((url) => !url.searchParams.has('node') && url.searchParams.get('panel') === 'events');
  await page.goto(address('?view=list&resource=kind%3AConfigMap%2Csync%3ASynced'));
  await page.getByRole('table', { name: 'Objects' }).getByText(`ConfigMap ${app}/settings`).waitFor();
  await expect(page.getByRole('table', { name: 'Objects' }).getByText(`Deployment ${app}/web`)).toHaveCount(0);
  await page.goto(address('?view=tree&operation=true'));
  await page.getByRole('tab', { name: 'Last operation', selected: true }).waitFor();
  await page.goto(`${product.url}/applications/${app}?view=pods`);
  await page.waitForURL(/\/applications\/argocd\/themed\?view=pods/);
  await heading(page, app);
});

test('UI-05 UX-NAV-8(part) arrow keys walk the tree, and what has the focus says its kind, name and states', async ({
  page,
}) => {
  await page.goto(address());
  const tree = page.getByRole('region', { name: 'Resource tree' });
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? '');
  const press = async (key: string, says: RegExp) => {
    await page.keyboard.press(key);
    await expect.poll(focused).toMatch(says);
  };
  const deployment = /^Deployment themed\/web, Healthy$/;
  await tree.getByRole('button', { name: deployment }).focus();
  await press('ArrowRight', /^ReplicaSet themed\/web-\w+, Healthy$/);
  await press('ArrowRight', /^Pod themed\/web-\w+-\w+, Healthy$/);
  await press('ArrowLeft', /^ReplicaSet /);
  // Left closes what is open, and right opens it again.
  await press('ArrowLeft', /^ReplicaSet /);
  await expect(tree.getByRole('button', { name: /^Pod / })).toHaveCount(0);
  await press('ArrowRight', /^ReplicaSet /);
  await tree.getByRole('button', { name: /^Pod / }).waitFor();
  await press('ArrowDown', /^Pod /);
  await press('ArrowUp', /^ReplicaSet /);
  await press('Home', /^(ConfigMap|Deployment) /);
  const first = await focused();
  await press('End', new RegExp(first.startsWith('ConfigMap') ? '^Pod ' : '^ConfigMap '));
  await press('Home', new RegExp(`^${first.slice(0, 9)}`));
  await page.keyboard.press('Enter');
  await page.getByRole('complementary').waitFor();
});

test('UX-NAV-10 the account page has a breadcrumb', async ({ page }) => {
  await page.goto(`${product.url}/account`);
  await page.getByRole('list', { name: 'Where you are' }).getByText('Your account').waitFor();
});

test('UX-A11-1 nothing of this has a serious barrier', () => {
  allow();
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
