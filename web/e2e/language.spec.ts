// The console in Japanese: everything that it says itself, on each of its places.
import { ja } from '../src/texts/ja';
import { allow, expect, look, looks, test } from './console';
import { product } from './product';

const { url, manual } = product;

/** A page, and a heading that it has in Japanese. */
const pages = [
  ['overview', ja.Overview],
  ['applications', ja.Applications],
  ['applications/new', ja['New application']],
  [`applications/argocd/${manual}`, manual],
  [`applications/argocd/${manual}?tab=diff`, manual],
  [`applications/argocd/${manual}?tab=history`, manual],
  ['clusters', ja.Clusters],
  ['resources', ja.Resources],
  ['repositories', ja.Repositories],
  ['projects', ja.Projects],
  ['activity', ja.Activity],
  ['access', ja.Access],
  ['settings', ja.Settings],
  ['account', ja['Your account']],
] as const;

test('UX-A11-5 who chooses Japanese reads every page in it, in each browser, until another choice', async ({
  page,
  browser,
}) => {
  await page.goto(`${url}/overview`);
  await page.getByRole('button', { name: 'Account', exact: true }).click();
  await page.getByRole('menuitemradio', { name: '日本語' }).click();
  await expect(page.locator('html')).toHaveAttribute('lang', 'ja');
  for (const [path, heading] of pages) {
    await page.goto(`${url}/${path}`);
    await page.getByRole('heading', { name: heading }).first().waitFor();
    await expect(page.getByRole('navigation').first().getByRole('link', { name: ja.Overview })).toBeVisible();
    await look(page, `ja-${path.replaceAll(/[/?=]/g, '-')}`);
  }
  // Another browser of the same account, which prefers English, has nothing of its own to go by.
  const cookies = await page.context().cookies();
  const other = await browser.newContext({ locale: 'en-GB', ignoreHTTPSErrors: url.startsWith('https:') });
  await other.addCookies(cookies);
  const second = await other.newPage();
  await second.goto(`${url}/clusters`);
  await second.getByRole('heading', { name: ja.Clusters }).first().waitFor();
  await second.getByRole('button', { name: ja.Account, exact: true }).click();
  await second.getByRole('menuitemradio', { name: 'English' }).click();
  await second.getByRole('heading', { name: 'Clusters' }).first().waitFor();
  await other.close();
  await page.goto(`${url}/overview`);
  await page.getByRole('heading', { name: 'Overview' }).first().waitFor();
});

test('UX-A11-5 a browser that prefers Japanese signs in in Japanese', async ({ page, browser }) => {
  allow('status of 401'); // nobody is signed in
  const fresh = await browser.newContext({ locale: 'ja-JP', ignoreHTTPSErrors: url.startsWith('https:') });
  const first = await fresh.newPage();
  await first.goto(`${url}/login`);
  await first.getByRole('button', { name: ja['Sign in'], exact: true }).waitFor();
  await look(first, 'ja-login');
  await first.getByRole('group', { name: ja.Language }).getByRole('button', { name: 'English' }).click();
  await first.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
  await fresh.close();
  await page.goto(`${url}/overview`);
  allow();
});

test('UX-A11-1 no page in Japanese has a serious barrier', () => {
  const all = looks().filter((l) => l.where.startsWith('ja-'));
  expect(all.flatMap((l) => l.barriers)).toEqual([]);
  expect(all.length).toBeGreaterThan(20);
});
