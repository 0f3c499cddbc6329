// The test of all specs: one page for all tests of a file, whose complaints fail
// the test in which they come, and the words in which specs speak of the console.
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test as base, expect, type Page } from '@playwright/test';
import { patience } from './limits';
import { product } from './product';

export { expect };

/** The sign-in that the spec of the account leaves to the others. */
export const session = () => join(product.work, 'session.json');

let problems: string[] = [];
let allowed: string[] = [];

/** From here on, messages of the browser with one of these texts, also in their address, are no problem. Without a text, all are. */
export function allow(...texts: string[]) {
  allowed = texts;
}

/** Notes what the browser complains about: errors, refused content, failed requests. */
function watch(page: Page) {
  page.on('console', (m) => {
    if (m.type() !== 'error' && m.type() !== 'warning') return;
    const said = `${m.type()} in the console: ${m.text()} (${m.location().url})`;
    if (!allowed.some((text) => said.includes(text))) problems.push(said);
  });
  page.on('pageerror', (e) => problems.push(`uncaught: ${e.message}`));
}

export const test = base.extend<object, { tab: Page }>({
  tab: [
    async ({ browser }, use) => {
      const signedIn = existsSync(session());
      const context = await browser.newContext({
        viewport: { width: 1280, height: 800 },
        colorScheme: 'light',
        reducedMotion: 'reduce',
        ignoreHTTPSErrors: product.url.startsWith('https:'), // its certificate is one of the test
        ...(signedIn ? { storageState: session() } : {}),
      });
      const page = await context.newPage();
      page.setDefaultTimeout(patience);
      watch(page);
      if (signedIn) await page.goto(product.url);
      await use(page);
      await context.close();
    },
    { scope: 'worker' },
  ],
  page: async ({ tab }, use, info) => {
    await use(tab);
    const found = problems;
    problems = [];
    if (info.status !== info.expectedStatus || found.length > 0) {
      await tab.screenshot({ path: join(product.shots, 'failure.png') }).catch(() => undefined);
      console.log(`failed at ${tab.url()}`);
    }
    expect(found).toEqual([]);
  },
});
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What was found on one page in one colour scheme. */
export interface Look {
  where: string;
  barriers: string[];
}

const lookFile = () => join(product.work, 'looks.jsonl');

/** Everything that was looked at so far. */
export function looks(): Look[] {
  const lines = readFileSync(lookFile(), 'utf8').trim().split('\n');
  return lines.map((line): Look => JSON.parse(line));
}

/** Takes pictures of a page in light and dark, and notes its barriers in each. */
export async function look(page: Page, name: string) {
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    // Pages of the documentation have no application that has to follow.
    if (await page.locator('html[data-mantine-color-scheme]').count()) {
      await page.locator(`html[data-mantine-color-scheme="${scheme}"]`).waitFor();
    }
    await page.screenshot({ path: join(product.shots, `${name}-${scheme}.png`), animations: 'disabled' });
    const where = `${name} in ${scheme}`;
    const found: Look = { where, barriers: await barriers(page, where) };
    appendFileSync(lookFile(), `${JSON.stringify(found)}\n`);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
}

/** The secret part of a join token, in a command that the page shows. */
const secretPart = /(capstan-join-v1\.)[\w-]+/;

/** Shows join tokens by their beginning only, as a picture that everybody sees has to. */
async function shortenTokens(page: Page) {
  const commands = page.locator('.command pre');
  for (const command of await commands.all()) {
    const short = ((await command.textContent()) ?? '').replace(secretPart, '$1…');
    await command.evaluate((pre, text) => {
      if (pre.firstChild) pre.firstChild.nodeValue = text; // the node that React knows
    }, short);
  }
  await expect(page.locator('body')).not.toContainText(secretPart);
}

/** Keeps a picture for the documentation, if somebody wants any: CAPSTAN_PICTURES is the folder. */
export async function picture(page: Page, name: string) {
  const folder = process.env['CAPSTAN_PICTURES'];
  if (!folder) return;
  await shortenTokens(page);
  await page.screenshot({ path: join(folder, `${name}.png`), animations: 'disabled' });
}

interface Violation {
  id: string;
  impact: string;
  help: string;
  nodes: { target: string[]; any: { message: string }[] }[];
}

/** What axe finds on a page that is serious or critical, but for the rules that are left out. */
export async function barriers(page: Page, where: string, without: readonly string[] = []): Promise<string[]> {
  // Through the debugger, which the content security policy does not bind.
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe);
  const rules = Object.fromEntries(without.map((rule) => [rule, { enabled: false }]));
  const found = await page.evaluate<{ violations: Violation[] }>(
    `axe.run(document, { resultTypes: ["violations"], rules: ${JSON.stringify(rules)} })`,
  );
  return found.violations
    .filter((v) => v.impact === 'serious' || v.impact === 'critical')
    .flatMap((v) => v.nodes.map((n) => `${where}: ${v.id}: ${n.target.join(' ')}: ${n.any[0]?.message ?? v.help}`));
}

/** Makes the account of a spec that does not follow the one of accounts. */
export async function makeAccount(page: Page) {
  await page.goto(product.setupLink);
  await page.getByRole('textbox', { name: 'User name' }).fill(product.user);
  await page.getByLabel('Password', { exact: false }).first().fill(product.password);
  await page.getByRole('button', { name: 'Create account' }).click();
  await heading(page, 'Overview');
  await page.context().storageState({ path: session() });
}

export const heading = (page: Page, name: string) => page.getByRole('heading', { name, exact: true }).waitFor();
export const row = (page: Page, name: string) =>
  page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
export const fact = (page: Page, label: string) => page.getByRole('group', { name: label, exact: true });
export const openTab = (page: Page, name: string) => page.getByRole('tab', { name }).click();
export const place = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }).click();

/** Opens an application as a person does: by a search in the list. */
export async function open(page: Page, name: string) {
  await place(page, 'Applications');
  await page.getByRole('textbox', { name: 'Search applications' }).fill(name);
  await page.getByRole('link', { name, exact: true }).click();
  await heading(page, name);
}

export async function signIn(page: Page, user: string, secret: string) {
  await page.getByRole('textbox', { name: 'User name' }).fill(user);
  await page.getByLabel('Password', { exact: false }).first().fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

/** Marks the page, so that notReloaded can tell whether it was loaded again since. */
export const mark = (page: Page) => page.evaluate('window.notReloaded = true');
export const notReloaded = async (page: Page) => expect(await page.evaluate('window.notReloaded')).toBe(true);
