import type { Page } from '@playwright/test';
import { allow, expect, heading, test } from './console';
import { act, product } from './product';

const { url } = product;

/** A part of every hostile text: where the console shows it, it stands among the words of the page. */
const marker = 'window.hit=1';

/** What would be there if a text had become markup, or if a link of it could be followed. */
const elements =
  'img[src="x"], svg[onload], [onerror], script:not([src]), iframe, object, embed, a[href^="javascript" i], a[href^="data" i]';

interface Found {
  hit: boolean;
  markup: string[];
  shown: number;
}

const script = (what: string, selector: string) => `({
  hit: 'hit' in window,
  markup: [...document.querySelectorAll(${JSON.stringify(selector)})].map((e) => e.outerHTML.slice(0, 200)),
  shown: document.body.innerText.split(${JSON.stringify(what)}).length - 1,
})`;

/** Checks that nothing of a text came alive, and returns how often it is shown as a text. */
async function inert(page: Page, where: string): Promise<number> {
  const found = await page.evaluate<Found>(script(marker, elements));
  expect({ where, hit: found.hit, markup: found.markup }).toEqual({ where, hit: false, markup: [] });
  return found.shown;
}

test('SEC-H1 SEC-H2 texts of tenants, repositories, objects, events and callers stay texts in Chromium', async ({
  page,
}) => {
  const dialogs: string[] = [];
  page.on('dialog', (dialog) => {
    dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  allow('status of 404'); // to what is not known of the application that cannot be rendered
  const app = await act('hostile');
  const shown: Record<string, number> = {};
  const look = async (where: string) => {
    shown[where] = await inert(page, where);
  };
  for (const name of [app, `${app}-bad`]) {
    await page.goto(`${url}/applications/argocd/${name}`);
    await heading(page, name);
    await page.getByText(marker).first().waitFor();
    await look(name);
    for (const tab of await page.getByRole('tab').all()) {
      const title = await tab.innerText();
      await tab.click();
      await expect(tab).toHaveAttribute('aria-selected', 'true');
      await expect(page.locator('[aria-busy="true"], .mantine-Loader-root')).toHaveCount(0);
      await look(`${name}, ${title}`);
    }
  }
  for (const path of [
    `applications?q=${encodeURIComponent(marker)}`,
    'overview',
    'clusters',
    'repositories',
    'settings',
  ]) {
    await page.goto(`${url}/${path}`);
    await expect(page.locator('[aria-busy="true"], .mantine-Loader-root')).toHaveCount(0);
    await look(path);
  }
  await page.goto(`${url}/projects`);
  await page.getByText(`${app}-bad`).first().waitFor();
  await look('projects');
  await page.goto(`${url}/activity`);
  await page.getByRole('textbox', { name: 'Search the activity' }).fill(marker);
  await page
    .getByRole('table', { name: 'Activity' })
    .getByRole('button', { name: 'sync applications' })
    .first()
    .click();
  await page.getByRole('dialog').getByText(marker).first().waitFor();
  await look('activity');
  allow();
  expect(dialogs).toEqual([]);
  const places = Object.keys(shown).filter((where) => (shown[where] ?? 0) > 0);
  console.log(`the text is shown at ${places.join(', ')}`);
  expect(places).toEqual(expect.arrayContaining([app, `${app}-bad`, 'activity']));
});
