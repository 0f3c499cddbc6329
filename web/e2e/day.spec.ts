// A tab that stays open for a day: the hub is restarted three times, and the machine sleeps.
// TestTabForADay of integration/tests/stories runs it in soak runs.
import type { CDPSession, Page } from '@playwright/test';
import { allow, expect, heading, mark, notReloaded, place, row, signIn, test } from './console';
import { act, product } from './product';

const hours = 24;
const restarts = [6, 12, 18];
const settled = 3; // hours after which all that is kept once has been kept
const growth = 20 * 1024 * 1024;

/** A request that opened the stream, and what was last heard before it. */
interface Opening {
  cursor: string;
  heard: string;
}

/** Notes how the page follows the stream. */
async function listen(cdp: CDPSession) {
  const stream = { openings: [] as Opening[], ids: new Set<string>(), heard: '', resets: 0, events: 0 };
  cdp.on('Network.requestWillBeSent', (e) => {
    const to = new URL(e.request.url);
    if (!to.pathname.endsWith('/api/v1/stream')) return;
    stream.openings.push({ cursor: to.searchParams.get('cursor') ?? '', heard: stream.heard });
  });
  cdp.on('Network.eventSourceMessageReceived', (e) => {
    stream.events++;
    if (e.eventName === 'reset') stream.resets++;
    if (!e.eventId) return;
    stream.heard = e.eventId;
    stream.ids.add(e.eventId);
  });
  await cdp.send('Network.enable');
  return stream;
}

/** What the page holds after its garbage is gone. */
async function held(cdp: CDPSession) {
  await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  const { nodes, jsEventListeners } = await cdp.send('Memory.getDOMCounters');
  return { heap: usedSize, nodes, listeners: jsEventListeners };
}

const offline = (page: Page) => page.getByText('Reconnecting to the hub. What you see is as of');
const live = (page: Page) => page.locator('.live[data-live="true"]');

/** Has the page count how often it said that it does not know: it may say so for a moment only. */
const countDoubts = (page: Page) =>
  page.evaluate(`{
    const mark = document.querySelector('.live');
    window.doubts = 0;
    new MutationObserver(() => (window.doubts += mark.dataset.live === 'false' ? 1 : 0)).observe(mark, {
      attributeFilter: ['data-live'],
    });
  }`);
const doubts = (page: Page) => page.evaluate<number>('window.doubts');

/** Has the list change, and waits until the page shows it, and no longer what was before. */
async function shows(page: Page, hour: number) {
  await row(page, `day-${hour}`).waitFor();
  await row(page, `day-${hour - 1}`).waitFor({ state: 'detached' });
}

test('FT-W3 UX-A11-6 a tab that is open for a day goes on after the last event, says when it does not know, and does not grow', async ({
  page,
}) => {
  test.setTimeout(14 * 60_000);
  allow('Failed to load resource', 'net::ERR_', 'EventSource');
  const password = await act('watcher');
  await page.clock.install();
  await page.goto(`${product.url}/login?to=/applications`);
  await signIn(page, 'watcher', password);
  await heading(page, 'Applications');
  await place(page, 'Applications');
  const cdp = await page.context().newCDPSession(page);
  const stream = await listen(cdp);
  await page.reload();
  await live(page).waitFor();
  await mark(page);
  await countDoubts(page);
  let first: Awaited<ReturnType<typeof held>> | undefined;
  for (let hour = 1; hour <= hours; hour++) {
    if (restarts.includes(hour)) {
      await act('stop');
      await offline(page).waitFor();
      const last = stream.heard;
      const tried = stream.openings.length;
      await row(page, `day-${hour - 1}`).waitFor(); // what was known stays, with the mark above it
      await offline(page).waitFor();
      await act('start');
      await live(page).waitFor();
      await offline(page).waitFor({ state: 'detached' });
      const since = stream.openings.slice(tried);
      expect(since.filter((o) => o.heard === last).map((o) => o.cursor)).toEqual(
        since.filter((o) => o.heard === last).map(() => last),
      );
    }
    if (hour % 4 === 0) {
      // The machine sleeps: nothing of the page runs while the list changes.
      await cdp.send('Page.setWebLifecycleState', { state: 'frozen' });
      await act(`hour-${hour}`);
      await cdp.send('Page.setWebLifecycleState', { state: 'active' });
      await shows(page, hour);
    } else {
      await act(`hour-${hour}`);
      await shows(page, hour);
    }
    // An hour passes at once, as when the lid is closed. Nothing was heard for so long: the page says so, until it
    // has heard something.
    const before = await doubts(page);
    const reopened = stream.openings.length;
    await page.clock.fastForward('01:00:00');
    await expect.poll(() => doubts(page)).toBeGreaterThan(before);
    await live(page).waitFor();
    expect(stream.openings.length).toBeGreaterThan(reopened);
    if (hour === settled) first = await held(cdp);
  }
  await notReloaded(page);
  const last = await held(cdp);
  const known = stream.openings
    .slice(1)
    .filter((o) => !stream.ids.has(o.cursor) && o.cursor !== stream.openings[0]?.cursor);
  expect(known, 'every stream begins after an event that was heard').toEqual([]);
  expect(stream.resets, 'nothing was missed, so nothing had to be read anew').toBe(0);
  const grown = last.heap - (first?.heap ?? 0);
  console.log(
    `FT-W3: ${stream.openings.length} streams, ${stream.events} events, ${stream.resets} resets; heap ${first?.heap} after ${settled} h, ${last.heap} after ${hours} h; nodes ${first?.nodes}, ${last.nodes}; listeners ${first?.listeners}, ${last.listeners}`,
  );
  expect(grown).toBeLessThan(growth);
});
