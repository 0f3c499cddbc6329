// Every page of the console in each of its states: with few and with many
// entries, empty, loading, failed, without rights, and without a hub. What is
// few, many, empty or refused is so at the hub; only faults are injected.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page, Route } from '@playwright/test';
import { allow, barriers, expect, signIn, test } from './console';
import { patience } from './limits';
import { act, product } from './product';
import { writeSheet } from './sheet';

/** A page of the router: its address, and whether nobody is signed in there. */
interface Place {
  path: string;
  out?: true;
  /** Nothing is read from the hub to show it. */
  still?: true;
  /** A form that can be filled in before what it offers is there. */
  form?: true;
  /** It lists what there may be much of. */
  long?: true;
}

const places: Place[] = [
  { path: '/login', out: true, form: true },
  { path: '/setup#no-such-link', out: true },
  { path: '/setup', out: true, still: true },
  { path: '/device', still: true },
  { path: '/overview', long: true },
  { path: '/applications', long: true },
  { path: '/applications/new', form: true },
  { path: '/applications/argocd/guestbook' },
  { path: '/applications/argocd/guestbook?tab=diff' },
  { path: '/applications/argocd/guestbook?tab=operation' },
  { path: '/applications/argocd/guestbook?tab=history' },
  { path: '/applications/argocd/guestbook?tab=events' },
  { path: '/applications/argocd/guestbook?tab=logs' },
  { path: '/applications/argocd/guestbook?tab=settings' },
  { path: '/applications/argocd/no-such-app' },
  { path: '/applicationsets' },
  { path: '/applicationsets?view=tiles' },
  { path: '/applicationsets/new', form: true },
  { path: '/applicationsets/argocd/no-such-set' },
  { path: '/clusters', long: true },
  { path: '/clusters/in-cluster' },
  { path: '/clusters/in-cluster?tab=limits' },
  { path: '/clusters/in-cluster?tab=enrolments' },
  { path: '/clusters/in-cluster?tab=events' },
  { path: '/resources', long: true },
  { path: '/repositories', long: true },
  { path: '/repositories?tab=templates' },
  { path: '/repositories?tab=hosts' },
  { path: '/repositories?tab=certificates' },
  { path: '/repositories?tab=keys' },
  { path: '/projects', long: true },
  { path: '/projects/default' },
  { path: '/projects/default?tab=roles' },
  { path: '/projects/default?tab=windows' },
  { path: '/projects/default?tab=events' },
  { path: '/projects/default?tab=edit&form=yaml' },
  { path: '/activity', long: true },
  { path: '/access', long: true },
  { path: '/access?tab=groups', long: true },
  { path: '/access?tab=roles' },
  { path: '/access?tab=policy', long: true },
  { path: '/access?tab=ask&q=delete+applications+*/*', long: true },
  { path: '/access?tab=sign-in' },
  { path: '/settings' },
  { path: '/settings?tab=advanced' },
  { path: '/settings?tab=quotas' },
  { path: '/account', long: true },
  { path: '/platform' },
  { path: '/no/such/page', still: true },
];

/** What a page shows of its state. */
interface Shown {
  words: number;
  loading: boolean;
  alerts: string[];
  /** States that are shown as good. */
  good: string[];
  /** What is meant for the one who writes the program. */
  odd: string[];
}

/** Words that no page has for people. */
const odd = /\b(?:undefined|NaN)\b|\[object |internal (?:server )?error|Invalid Date/gi;

/** Looks at one moment: a page that goes on between two looks would seem to be done, with nothing in it. */
async function shown(page: Page): Promise<Shown> {
  const seen = await page.evaluate<{ text: string; loading: boolean; alerts: string[]; good: string[] }>(`(() => {
    const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.innerText);
    return {
      text: texts('main')[0] ?? '',
      loading: document.querySelector('[aria-label="Loading"], .mantine-Loader-root, [aria-busy="true"]') !== null,
      alerts: texts('[role="alert"]'),
      good: texts('main .state[data-tone="ok"]'),
    };
  })()`);
  const { text, ...rest } = seen;
  return { ...rest, words: text.split(/\s+/).filter(Boolean).length, odd: text.match(odd) ?? [] };
}

const table: Record<string, Record<string, string>> = {};
const wrong: string[] = [];

function note(place: Place, state: string, what: string, problems: string[]) {
  const cells = table[place.path] ?? {};
  table[place.path] = cells;
  cells[state] = problems.length > 0 ? `${what} !` : what;
  wrong.push(...problems.map((p) => `${place.path} ${state}: ${p}`));
}

/** What is asked while a page is open anyway: who is there, and what the frame shows. */
const frame = /\/api\/v1\/(me|stream|pauses|settings\/client)(\?|$)/;

interface Person {
  page: Page;
  name: string;
}

/** A browser of somebody; its clock can be moved, so that retries need no waiting. */
async function somebody(browser: Browser, name: string): Promise<Person> {
  const context = await browser.newContext({
    viewport: wide,
    reducedMotion: 'reduce',
    storageState: { cookies: [], origins: [] },
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  await page.clock.install();
  return { page, name };
}

const wide = { width: 1280, height: 800 };
const narrow = { width: 390, height: 844 };

/** Keeps pictures of a page in a state, if somebody wants any: with few entries in both themes and widths. */
async function keep(page: Page, place: Place, state: string) {
  if (!product.kept) return;
  const file = place.path.replace(/[^a-z-]+/g, '-').replace(/^-|-$/g, '');
  const rows: string[][] = [];
  // The clock was moved on, so the page may have missed signs of life of the hub.
  if (state === 'few') await expect(page.getByText('Reconnecting')).toHaveCount(0);
  for (const scheme of state === 'few' ? (['light', 'dark'] as const) : (['light'] as const)) {
    const row: string[] = [];
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await page.locator(`html[data-mantine-color-scheme="${scheme}"]`).waitFor();
    for (const size of state === 'few' ? [wide, narrow] : [wide]) {
      await page.setViewportSize(size);
      const path = join(product.shots, `state-${state}-${file}-${scheme}-${size.width}.png`);
      await page.screenshot({ path, animations: 'disabled' });
      row.push(path);
    }
    rows.push(row);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  await page.setViewportSize(wide);
  if (state === 'few') await sheet(page, place, file, rows);
}

/** The sheets of the documentation: address of a page and name of its file. */
const sheets: [path: string, file: string][] = [];

/** Keeps a page's pictures for the documentation, if somebody wants any: CAPSTAN_PICTURES is the folder. */
async function sheet(page: Page, place: Place, name: string, rows: string[][]) {
  const folder = process.env['CAPSTAN_PICTURES'];
  const browser = page.context().browser();
  if (!folder || !browser) return;
  mkdirSync(join(folder, 'pages'), { recursive: true });
  await writeSheet(browser, join(folder, 'pages', `${name}.webp`), place.path, rows);
  sheets.push([place.path, `${name}.webp`]);
  const lines = sheets.map(([path, file]) => `- [\`${path}\`](${file})`);
  writeFileSync(join(folder, 'pages', 'README.md'), `${heading}\n\n${lines.join('\n')}\n`);
}

const heading = `# Pages of the console

Each page with few entries, light and dark, on a screen of 1,280 and of 390 px. \`make screenshots\` makes these sheets.`;

/** What is wrong with a page on a narrow screen. */
async function cramped(page: Page): Promise<string[]> {
  await page.setViewportSize(narrow);
  const needed = Number(await page.evaluate('document.documentElement.scrollWidth'));
  await page.setViewportSize(wide);
  return needed > narrow.width ? [`it is ${needed} px wide on a screen of ${narrow.width} px`] : [];
}

/** Contrast takes most of the time of axe; the specs that take pictures look at it. */
const slow = ['color-contrast'];

/** How long a page may take to reach a state before it counts as one that never does. */
const given = patience;

/** Waits until a page has stopped loading and shows what it should: a form is there before what it asks the hub for. */
async function settled(page: Page, right: (seen: Shown) => boolean): Promise<Shown> {
  let last: Shown = { words: 0, loading: true, alerts: [], good: [], odd: [] };
  await expect
    .poll(
      async () => {
        await page.clock.fastForward(3_000); // past the pause before another try
        last = await shown(page);
        return last.words > 0 && !last.loading && right(last);
      },
      { timeout: given, intervals: [100] },
    )
    .toBe(true)
    .catch(() => undefined);
  return last;
}

/** Opens a page with the requests of its own in the hands of a fault. */
async function walk(
  who: Person,
  state: string,
  judge: (place: Place, seen: Shown) => { what: string; problems: string[] },
  fault?: (route: Route) => Promise<unknown>,
  which: (place: Place) => boolean = () => true,
) {
  const { page } = who;
  for (const place of places.filter(which)) {
    const anywhere = (url: URL) => url.pathname.includes('/api/v1/') && !frame.test(url.pathname + url.search);
    if (fault) await page.route(anywhere, fault);
    await page.goto(`${product.url}${place.path}`);
    const seen = await settled(page, (now) => judge(place, now).problems.length === 0);
    const { what, problems } = judge(place, seen);
    if (seen.words === 0) problems.push('it shows nothing');
    if (seen.loading) problems.push('it loads for ever');
    problems.push(...seen.odd.map((text) => `it says “${text}”`));
    problems.push(...(await barriers(page, state, slow)));
    if (!fault) problems.push(...(await cramped(page)));
    await keep(page, place, state);
    note(place, state, what, problems);
    if (fault) await page.unrouteAll({ behavior: 'ignoreErrors' });
  }
}

const content = (_place: Place, seen: Shown) => ({
  what: seen.alerts.length > 0 ? 'says why' : 'content',
  problems: [] as string[],
});

const signedIn = (place: Place) => !place.out;

test.describe.configure({ timeout: 10 * patience });

test('UX-A11-7 each page has content, and says what is missing or refused', async ({ browser }) => {
  const admin = await somebody(browser, product.user);
  await walk(admin, 'few', content, undefined, (place) => place.out === true);
  await admin.page.goto(product.url);
  await signIn(admin.page, product.user, product.password);
  await admin.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await walk(admin, 'few', content, undefined, signedIn);
  await act('many');
  await walk(admin, 'many', content, undefined, (place) => place.long === true);
  await admin.page.context().close();
});

test('UX-A11-7 each page is of use to a tenant that has nothing', async ({ browser }) => {
  const first = await somebody(browser, 'first');
  await first.page.goto(await act('tenant', 'hollow'));
  await first.page.getByRole('textbox', { name: 'User name' }).fill('first');
  await first.page.getByLabel('Password', { exact: false }).first().fill('a long enough password');
  await first.page.getByRole('button', { name: 'Create account' }).click();
  await first.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await walk(
    first,
    'empty',
    (_place, seen) => ({
      what: seen.alerts.length > 0 ? 'says why' : 'content',
      problems: seen.words < 4 ? [`only ${seen.words} words`] : [],
    }),
    undefined,
    signedIn,
  );
  await first.page.context().close();
});

test('UX-A11-7 UX-ACC-3 each page says to somebody without rights what is missing', async ({ browser }) => {
  const nobody = await somebody(browser, 'nobody');
  const password = await act('person', 'nobody');
  await nobody.page.goto(product.url);
  await signIn(nobody.page, 'nobody', password);
  await nobody.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await walk(nobody, 'forbidden', content, undefined, signedIn);
  await nobody.page.context().close();
});

test('UX-A11-7 each page shows that it loads, that the hub failed, and that it is gone', async ({ browser }) => {
  const admin = await somebody(browser, product.user);
  const { page } = admin;
  const failure = {
    status: 500,
    json: {
      code: 'CAP-5000',
      message: 'the database does not answer',
      fix: 'try again in a minute',
      request_id: 'r-1',
    },
  };
  const says = (words: string) => (place: Place, seen: Shown) => {
    const told = seen.alerts.some((a) => a.includes(words));
    return {
      what: told ? 'says why' : 'content',
      problems: [
        ...(told || place.still ? [] : [`it does not say “${words}”`]),
        ...seen.good.map((text) => `it shows “${text}” without having read it`),
      ],
    };
  };
  const faults = async (which: (place: Place) => boolean) => {
    for (const place of places.filter(which)) {
      let release: () => void = () => undefined;
      const held = new Promise<void>((go) => {
        release = go;
      });
      const anywhere = (url: URL) => url.pathname.includes('/api/v1/') && !frame.test(url.pathname + url.search);
      await page.route(anywhere, async (route) => {
        await held;
        await route.continue().catch(() => undefined); // the page may have gone on
      });
      await page.goto(`${product.url}${place.path}`, { waitUntil: 'domcontentloaded' });
      let seen = await shown(page);
      await expect
        .poll(
          async () => {
            seen = await shown(page);
            return seen.loading || (seen.words > 0 && (place.still || place.form));
          },
          { timeout: given, intervals: [100] },
        )
        .toBe(true)
        .catch(() => undefined);
      note(place, 'loading', seen.loading ? 'loads' : 'content', [
        ...(seen.alerts.length > 0 ? [`it says “${seen.alerts[0]}” while it loads`] : []),
        ...(!seen.loading && !place.still && !place.form ? ['it does not show that it loads'] : []),
        ...seen.good.map((text) => `it shows “${text}” while it loads`),
        ...(await barriers(page, 'loading', slow)),
      ]);
      await keep(page, place, 'loading');
      release();
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    }
    await walk(admin, 'failed', says('The database does not answer.'), (route) => route.fulfill(failure), which);
    await walk(
      admin,
      'hub gone',
      says('The hub cannot be reached.'),
      (route) => route.abort('connectionrefused'),
      which,
    );
  };
  await faults((place) => place.out === true);
  await page.goto(product.url);
  await signIn(page, product.user, product.password);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await faults(signedIn);
  await page.context().close();
});

test('UX-A11-7 no page shows nothing, loads for ever or says nothing, and none has a serious barrier', () => {
  allow();
  const states = ['few', 'many', 'empty', 'forbidden', 'loading', 'failed', 'hub gone'];
  console.log(`figure: ${'page'.padEnd(48)}${states.map((s) => s.padEnd(12)).join('')}`);
  for (const [path, cells] of Object.entries(table)) {
    console.log(`figure: ${path.padEnd(48)}${states.map((s) => (cells[s] ?? '–').padEnd(12)).join('')}`);
  }
  expect(wrong).toEqual([]);
});
