// The list with thousands of applications, measured. integration/tools/bench runs it.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, signIn, test } from './console';
import { product } from './product';

const { url } = product;

/**
 * Has the page itself measure how long it takes, in milliseconds, from the next key or click until the frame is
 * painted that has the number of applications. What asks the page from outside asks too seldom, and takes time of it.
 */
async function shows(page: Page, count: string): Promise<() => Promise<number>> {
  await page.evaluate(`window.shown = new Promise((done) => {
    let begin;
    const start = () => (begin ??= performance.now());
    for (const kind of ['input', 'click']) addEventListener(kind, start, { capture: true, once: true });
    const heading = document.querySelector('.heading');
    const there = () => [...heading.children].some((e) => e.textContent === '${count}');
    const watch = new MutationObserver(() => {
      if (begin === undefined || !there()) return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(Math.round(performance.now() - begin))));
    });
    watch.observe(heading, { subtree: true, childList: true, characterData: true });
  }); undefined`);
  return () => page.evaluate<number>('window.shown');
}

test('UX-NAV-1 the list of 10,000 applications is read and filtered within its budgets', async ({ page }) => {
  let bytes = 0;
  let requests = 0;
  page.on('response', async (r) => {
    if (!r.url().includes('/api/v1/applications?')) return;
    requests++;
    bytes += (await r.body().catch(() => Buffer.alloc(0))).length;
  });
  await page.goto(`${url}/login?to=/settings`);
  await signIn(page, product.user, product.password);
  await page.waitForURL((at) => at.pathname.endsWith('/settings'));
  const firsts: number[] = [];
  const sizes: number[] = [];
  for (let i = 0; i < 5; i++) {
    bytes = 0;
    requests = 0;
    const begin = Date.now();
    await page.goto(`${url}/applications`);
    await page.locator('[data-index="5"] .name-cell a').waitFor();
    firsts.push(Date.now() - begin);
    await page.getByText('10,000 applications', { exact: true }).waitFor();
    await page.getByRole('region', { name: 'Project', exact: true }).waitFor();
    sizes.push(bytes);
  }
  const box = page.getByRole('textbox', { name: 'Search applications' });
  const all = page.getByText('10,000 applications', { exact: true });
  const filters: number[] = [];
  for (const [text, count] of [
    ['app-777', '11 applications'],
    ['app-42', '111 applications'],
    ['project:p-7', '100 applications'],
    ['name:app-1*', '1,111 applications'],
    ['app-9999', '1 application'],
  ] as const) {
    await box.fill('');
    await all.waitFor();
    const shown = await shows(page, count);
    await box.fill(text);
    filters.push(await shown());
  }
  const chosen: number[] = [];
  const project = page.getByRole('region', { name: 'Project', exact: true }).locator('.facet button:not(.bar)');
  for (let i = 0; i < 5; i++) {
    await box.fill('');
    await all.waitFor();
    const shown = await shows(page, '100 applications');
    await project.nth(i).click();
    chosen.push(await shown());
  }
  await box.fill('');
  await all.waitFor();
  const begin = Date.now();
  await page.locator('section.list').evaluate((e) => e.scrollTo(0, e.scrollHeight));
  await page.locator('[data-index="9999"] .name-cell a').waitFor();
  const end = Date.now() - begin;
  const drawn = await page.locator('[data-index]').count();
  expect(drawn).toBeLessThan(120);
  const heap = await page.evaluate<number>('performance.memory ? performance.memory.usedJSHeapSize : 0');
  writeFileSync(
    join(product.work, 'figures.json'),
    JSON.stringify({ firsts, sizes, filters, chosen, end, drawn, heap, requests }),
  );
});
