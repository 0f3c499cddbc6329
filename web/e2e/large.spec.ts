// The page of an application with much in it, and how soon it shows what changes in a cluster: measured.
// integration/tests/apppage runs it, and integration/tools/bench for its figures.
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, heading, look, looks, row, session, signIn, test } from './console';
import { act, product } from './product';

const log = (page: Page) => page.getByRole('log', { name: 'Log' });

/** What was measured, by name: the output of the test has it, and figures.json. */
const figures: Record<string, number | number[]> = {};

function figure(name: string, values: Record<string, number | number[]>, words: string) {
  Object.assign(figures, values);
  writeFileSync(join(product.work, 'figures.json'), JSON.stringify(figures));
  console.log(`figure: ${name}: ${words}`);
}

test('UI-18 who is not signed in yet signs in', async ({ page }) => {
  test.skip(existsSync(session()), 'the sign-in is there');
  await page.goto(`${product.url}/login?to=/settings`);
  await signIn(page, product.user, product.password);
  await page.waitForURL((at) => at.pathname.endsWith('/settings'));
  await page.context().storageState({ path: session() });
});

interface Changes {
  /** The act that changes an object in the cluster, to and fro. */
  does: string;
  /** Where the page shows it, as an expression. */
  shown: string;
  /** What is there, by turns. */
  becomes: [string, string];
}

/**
 * Has an object change again and again, and says how soon each change was painted and what the page received from the
 * hub's API for it: events and what is read because of them. Scripts that are loaded ahead are none of it.
 */
async function painted(page: Page, name: string, { does, shown, becomes }: Changes) {
  const network = await page.context().newCDPSession(page);
  const asked = new Map<string, string>();
  const received = new Map<string, number>(); // bytes, by the last part of the path
  let requests = 0;
  let reads = 0; // of the application and its tree
  let details = 0;
  await network.send('Network.enable');
  network.on('Network.requestWillBeSent', (e) => {
    const path = new URL(e.request.url).pathname;
    asked.set(e.requestId, path);
    requests++;
    if (path.endsWith(`/argocd/${name}`) || path.endsWith('/tree')) reads++;
  });
  network.on('Network.dataReceived', (e) => {
    const path = asked.get(e.requestId) ?? '';
    if (!path.startsWith('/api/')) return;
    const part = path.split('/').at(-1) ?? '';
    received.set(part, (received.get(part) ?? 0) + (e.encodedDataLength || e.dataLength));
  });
  network.on('Network.eventSourceMessageReceived', (e) => {
    if (e.eventName === 'detail') details++;
  });
  await page.goto(`${product.url}/applications/argocd/${name}`);
  await expect.poll(() => page.evaluate(shown)).toBe(becomes[1]);
  await page.getByRole('region', { name: 'Resource tree' }).locator('.react-flow__node').first().waitFor();
  // From here on the stream brings what changes of the application.
  await expect.poll(() => details).toBeGreaterThan(0);
  received.clear();
  requests = 0;
  reads = 0;
  const delays: number[] = [];
  const changes = Number(process.env['CAPSTAN_CHANGES'] ?? 4);
  for (let i = 0; i < changes; i++) {
    // The page itself notes when the frame is painted that has the other state.
    await page.evaluate(`window.painted = new Promise((done) => {
      const watch = new MutationObserver(() => {
        if (${shown} !== '${becomes[i % 2]}') return;
        watch.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(performance.timeOrigin + performance.now())));
      });
      watch.observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ['data-status'] });
    }); undefined`);
    const written = Number(await act(does));
    delays.push(Math.round((await page.evaluate<number>('window.painted')) - written));
  }
  await network.detach();
  // The stream brings both. They are read only when an agent comes or goes.
  expect(reads).toBeLessThan(changes);
  const bytes = [...received.values()].reduce((sum, n) => sum + n, 0);
  const parts = [...received].map(([part, n]) => `${part} ${Math.round(n / changes)}`).join(', ');
  const middle = delays.toSorted((a, b) => a - b)[delays.length >> 1];
  return {
    delays,
    bytes: Math.round(bytes / changes),
    requests: requests / changes,
    words: `p50 ${middle} ms, most ${Math.max(...delays)} ms of ${changes}; ${Math.round(bytes / changes)} bytes (${parts}) and ${requests / changes} requests a change`,
  };
}

test('UX-APP-2(part) B05 what changes in a cluster is painted by itself', async ({ page }) => {
  const { words, ...values } = await painted(page, 'seen', {
    does: 'change',
    shown: `document.querySelector('.state[data-status]')?.dataset.status`,
    becomes: ['OutOfSync', 'Synced'],
  });
  figure('B05 change in the cluster to painted', values, `${words} (budget 2 s, 1,000 bytes)`);
});

test('B05 what changes of 2,000 objects is painted by itself', async ({ page }) => {
  const { words, delays, bytes } = await painted(page, 'many', {
    does: 'change-many',
    shown: `[...document.querySelectorAll('[role=tab]')].find((t) => t.textContent.startsWith('Diff'))?.querySelector('.tab-count')?.textContent`,
    becomes: ['501', '500'],
  });
  figure('B05 change of one of 2,000 objects to painted', { delaysMany: delays, bytesMany: bytes }, words);
});

test('UX-APP-3 a tree of 2,000 objects is drawn with few elements', async ({ page }) => {
  await page.goto(`${product.url}/applications`);
  await row(page, 'many').waitFor();
  const begun = Date.now();
  await row(page, 'many').getByRole('link', { name: 'many', exact: true }).click();
  const tree = page.getByRole('region', { name: 'Resource tree' });
  await tree.getByRole('button', { name: /× ConfigMap objects/ }).waitFor();
  const drawn = Date.now() - begun;
  figure('UX-APP-3 tree of 2,000 objects, from the list', { tree: drawn }, `${drawn} ms (budget 1 s)`);
  const count = () => tree.locator('*').count();
  figure('UX-APP-3 elements', { elements: await count() }, `${await count()} closed (budget 300)`);
  expect(await count()).toBeLessThanOrEqual(300);
  await tree.getByRole('button', { name: /× ConfigMap objects/ }).click();
  await tree
    .getByRole('button', { name: /^ConfigMap / })
    .first()
    .waitFor();
  const nodes = await tree.locator('.react-flow__node').count();
  const inside = await page.context().newCDPSession(page);
  await inside.send('HeapProfiler.collectGarbage');
  const { usedSize: heap } = await inside.send('Runtime.getHeapUsage');
  await inside.detach();
  figure(
    'UX-APP-3 boxes',
    { boxes: nodes, heap },
    `${nodes} with the group opened (budget 300), heap ${Math.round(heap / 2 ** 20)} MB after a collection (budget 80)`,
  );
  expect(nodes).toBeLessThanOrEqual(300);
  await tree.locator('.react-flow__minimap').waitFor();
  await look(page, 'app-tree-2000');
});

test('UI-08 a diff of 500 objects', async ({ page }) => {
  await page.goto(`${product.url}/applications/argocd/many`);
  await heading(page, 'many');
  await expect(page.getByRole('tab', { name: /^Diff/ })).toContainText('500');
  const begun = Date.now();
  await page.getByRole('tab', { name: /^Diff/ }).click();
  await page.getByText('500 objects').waitFor();
  const summary = Date.now() - begun;
  await page.getByText('+500').first().waitFor();
  const counts = Date.now() - begun;
  figure(
    'UI-08 diff of 500 objects',
    { summary, counts },
    `${summary} ms to the summary, ${counts} ms to all counts (budget 2 s)`,
  );
  await page.keyboard.press('k');
  await page.getByText('Change 500 of 500').waitFor();
  await look(page, 'app-diff-500');
});

test('UX-LOG-3(part) a log of 5,000 lines a second is followed to its end', async ({ page }) => {
  await page.goto(
    `${product.url}/applications/argocd/shop?object=${encodeURIComponent('apps/StatefulSet/shop/store')}&panel=logs&full=yes`,
  );
  const viewer = page.getByRole('region', { name: 'Log viewer' });
  await viewer.getByRole('button', { name: 'Following' }).waitFor();
  await page.evaluate(`(() => {
    const frames = window.frames60 = [];
    let last = performance.now();
    const next = (now) => { frames.push(now - last); last = now; window.framesRun = requestAnimationFrame(next); };
    window.framesRun = requestAnimationFrame(next);
  })()`);
  const lines = Number(await act('flood'));
  const begun = Date.now();
  await log(page).getByText('the flood ends').waitFor({ timeout: 100_000 });
  const frames = await page.evaluate<number[]>('(cancelAnimationFrame(window.framesRun), window.frames60)');
  const slow = frames.filter((f) => f > 50).length;
  const worst = Math.max(...frames);
  figure(
    'UX-LOG-3 5,000 lines/s',
    { lines, frames: frames.length, slow, worst: Math.round(worst), behind: Date.now() - begun },
    `${lines} lines, ${frames.length} frames, ${slow} longer than 50 ms, the longest ${worst.toFixed(0)} ms, ended ${((Date.now() - begun) / 1000).toFixed(1)} s after the last line was written`,
  );
  // The count is painted apart from the lines.
  await expect(viewer.locator('.log-foot')).toContainText(`${lines.toLocaleString('en')} lines`);
  expect(await log(page).locator('.log-line').count()).toBeLessThan(150);
});

test('UX-A11-1 no page with much in it has a serious barrier', () => {
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
