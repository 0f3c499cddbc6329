// Drives the console in a real browser against a running product and says each
// step. It changes the product only as a person would; what a person does
// elsewhere (git push, kubectl) it asks of its caller: it prints "? question"
// and reads one line as the answer.
//
// Environment: CAPSTAN_URL, CAPSTAN_SETUP_LINK, CAPSTAN_USER, CAPSTAN_PASSWORD,
// CAPSTAN_APP (automated, with a Deployment), CAPSTAN_MANUAL (not automated),
// CAPSTAN_BAD (its repository cannot be fetched), CAPSTAN_SHOTS (a folder),
// CAPSTAN_CHROMIUM (default /usr/bin/chromium).
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const patience = 120_000; // of a failure; a busy machine must not come near it
const flags =
  '--headless --no-sandbox --disable-gpu --disable-background-networking --disable-quic --no-first-run --disable-component-update --disable-sync';
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const env = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`the environment variable ${name} is missing`);
  return value;
};
const url = env('CAPSTAN_URL');
const user = env('CAPSTAN_USER');
const password = env('CAPSTAN_PASSWORD');
const app = env('CAPSTAN_APP');
const manual = env('CAPSTAN_MANUAL');
const bad = env('CAPSTAN_BAD');
const shots = env('CAPSTAN_SHOTS');

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function ask(question) {
  console.log(`? ${question}`);
  const { value, done } = await answers.next();
  if (done) throw new Error(`nobody answered "${question}"`);
  return value;
}

const problems = [];
const barriers = [];
let expected = [];

/** Notes what the browser complains about: errors, refused content, failed requests. */
function watch(page) {
  page.on('console', (m) => {
    if (m.type() !== 'error' && m.type() !== 'warning') return;
    if (expected.some((e) => m.text().includes(e))) return;
    problems.push(`${m.type()} in the console: ${m.text()} (${m.location().url})`);
  });
  page.on('pageerror', (e) => problems.push(`uncaught: ${e.message}`));
}

async function step(name, act) {
  const begin = Date.now();
  try {
    await act();
    if (problems.length > 0) throw new Error(problems.join('\n'));
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
  console.log(`ok ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
}

/** Pictures of a page in light and dark, each checked for accessibility. */
async function look(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await page.locator(`html[data-mantine-color-scheme="${scheme}"]`).waitFor();
    await page.screenshot({ path: join(shots, `${name}-${scheme}.png`), animations: 'disabled' });
    await accessible(page, `${name} in ${scheme}`);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
}

async function accessible(page, where) {
  // Through the debugger, which the content security policy does not bind.
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe);
  const found = await page.evaluate('axe.run(document, { resultTypes: ["violations"] })');
  const serious = found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
  for (const v of serious) {
    for (const n of v.nodes) barriers.push(`${where}: ${v.id}: ${n.target.join(' ')}: ${n.any[0]?.message ?? v.help}`);
  }
}

const heading = (page, name) => page.getByRole('heading', { name, exact: true }).waitFor();
const row = (page, name) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
const fact = (page, label) => page.getByRole('group', { name: label, exact: true });
const openTab = (page, name) => page.getByRole('tab', { name }).click();
const place = (page, name) => page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name }).click();

async function open(page, name) {
  await place(page, 'Applications');
  await page.getByRole('textbox', { name: 'Search applications' }).fill(name);
  await page.getByRole('link', { name, exact: true }).click();
  await heading(page, name);
}

async function signIn(page, secret) {
  await page.getByRole('textbox', { name: 'User name' }).fill(user);
  await page.getByLabel('Password', { exact: false }).first().fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

async function account(page) {
  await step('a used-up or wrong setup link says so', async () => {
    expected = ['Failed to load resource'];
    await page.goto(`${url}/setup`);
    await page.getByText('This setup link is not complete.').waitFor();
    await page.goto('about:blank');
    await page.goto(`${url}/setup#wrong`);
    await page.getByRole('alert').getByText('The setup link was used already').waitFor();
    await look(page, 'setup-wrong');
    expected = [];
  });
  await step('the setup link makes the first account', async () => {
    await page.goto('about:blank'); // a new fragment alone loads nothing
    await page.goto(env('CAPSTAN_SETUP_LINK'));
    await heading(page, 'Welcome to Capstan');
    await look(page, 'setup');
    await page.getByRole('textbox', { name: 'User name' }).fill(user);
    await page.getByLabel('Password', { exact: false }).first().fill(password);
    await page.getByRole('button', { name: 'Create account' }).click();
    await heading(page, 'Applications');
  });
  await step('sign out leads to the sign-in', async () => {
    expected = ['status of 401']; // to what was asked for at that moment
    await page.getByRole('button', { name: 'Account' }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await heading(page, 'Sign in to Capstan');
    await look(page, 'sign-in');
  });
  await step('a wrong password is answered with one sentence', async () => {
    expected = ['status of 401'];
    await signIn(page, `${password}x`);
    const said = await page.getByRole('alert').innerText();
    if (!/password/i.test(said) || said.split('\n').filter(Boolean).length > 3) throw new Error(`it says: ${said}`);
    await look(page, 'sign-in-wrong');
  });
  await step('a page behind the sign-in is where the sign-in leads', async () => {
    await page.goto(`${url}/clusters`);
    await heading(page, 'Sign in to Capstan');
    await signIn(page, password);
    await heading(page, 'Clusters');
    expected = [];
  });
}

async function list(page) {
  await step('the list shows the applications and follows changes', async () => {
    await place(page, 'Applications');
    await row(page, app).getByText('Healthy').waitFor();
    await row(page, app).getByText('In sync').waitFor();
    await page.getByRole('status').getByText('Live').waitFor();
    await page.evaluate('window.notReloaded = true');
    const created = await ask('create');
    await row(page, created).getByText('Healthy').waitFor();
    if (!(await page.evaluate('window.notReloaded'))) throw new Error('the page was loaded again');
    await look(page, 'list');
  });
  await step('a hub that hangs is noticed, and so is that it goes on', async () => {
    expected = ['Failed to load resource', 'net::'];
    await ask('hang');
    await page.getByRole('alert').getByText('Reconnecting to the hub').waitFor();
    await page.screenshot({ path: join(shots, 'hanging.png') });
    await ask('go on');
    await page.getByRole('status').getByText('Live').waitFor();
    expected = [];
  });
  await step('the filter is in the address, and an empty result says so', async () => {
    await page.getByRole('textbox', { name: 'Search applications' }).fill(app);
    await page.waitForURL(/q=/);
    await page.reload();
    await row(page, app).waitFor();
    await page.getByRole('textbox', { name: 'Search applications' }).fill('no such application');
    await page.getByText('No application matches the filter.').waitFor();
    await look(page, 'list-none');
  });
  await step('a phone shows the list without sideways scrolling of the page', async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await page.goto(`${url}/applications`);
    await row(page, app).waitFor();
    await look(page, 'phone-list');
    const wide = await page.evaluate('document.documentElement.scrollWidth > window.innerWidth');
    if (wide) throw new Error('the page is wider than the window');
    await page.setViewportSize({ width: 1280, height: 800 });
  });
}

async function automated(page) {
  await step('the application page shows the tree with what Kubernetes made', async () => {
    await open(page, app);
    const tree = page.getByRole('region', { name: 'Resource tree' });
    for (const kind of ['Deployment', 'ReplicaSet', 'Pod'])
      await tree.getByText(kind, { exact: false }).first().waitFor();
    await look(page, 'tree');
  });
  await step('the focus goes to the heading, and back to what opened a drawer', async () => {
    await place(page, 'Applications');
    await row(page, app).getByRole('link', { name: app, exact: true }).click();
    await page.waitForFunction((name) => document.activeElement?.textContent?.trim() === name, app);
    const box = page.getByRole('region', { name: 'Resource tree' }).getByRole('button', { name: /^Deployment / });
    await box.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.waitForFunction(() => /^Deployment /.test(document.activeElement?.getAttribute('aria-label') ?? ''));
  });
  await step('a push appears as the new revision, live', async () => {
    await page.evaluate('window.notReloaded = true');
    const revision = (await ask('push')).slice(0, 8);
    await fact(page, 'Drift').getByText(revision).waitFor();
    await fact(page, 'Drift').getByText('In sync').waitFor();
    await fact(page, 'Health').getByText('Healthy').first().waitFor();
    if (!(await page.evaluate('window.notReloaded'))) throw new Error('the page was loaded again');
  });
  await step('the last operation lists its objects', async () => {
    await openTab(page, 'Last operation');
    await page.getByRole('row').filter({ hasText: 'Deployment' }).first().waitFor();
    // In sync is told before the operation has ended, and until then nobody can roll back.
    await page.getByRole('tabpanel', { name: 'Last operation' }).getByText('Succeeded').first().waitFor();
    await look(page, 'operation');
  });
  await step('a rollback pauses the application, says so everywhere, and can be resumed', async () => {
    await openTab(page, 'History');
    await page.getByRole('button', { name: 'Roll back to this' }).last().click();
    await page.getByRole('dialog').getByRole('textbox', { name: 'Reason' }).fill('the console story');
    await look(page, 'rollback');
    await page.getByRole('dialog').getByRole('button', { name: 'Roll back' }).click();
    await page.getByRole('status').getByText('rolled back by browser because the console story').waitFor();
    await page.getByRole('row').filter({ hasText: 'the console story' }).first().waitFor();
    await fact(page, 'State').getByText('Paused').waitFor();
    await fact(page, 'Drift').getByText('Drifted').waitFor();
    await look(page, 'history');
    await openTab(page, 'Diff');
    await page.getByText('at which the application is paused').waitFor();
    await place(page, 'Applications');
    await row(page, app).getByText('Paused').waitFor();
    await row(page, app).getByText('Drifted').waitFor();
    await look(page, 'list-paused');
    await row(page, app).getByRole('link', { name: app, exact: true }).click();
    await page.getByRole('button', { name: 'Resume auto-sync' }).click();
    await fact(page, 'Drift').getByText('In sync').waitFor();
    await page.getByRole('button', { name: 'Resume auto-sync' }).waitFor({ state: 'detached' });
  });
}

async function byHand(page) {
  await step('the diff of a manual application shows the field', async () => {
    await open(page, manual);
    const wanted = await ask('drift');
    await fact(page, 'Drift').getByText('Drifted').waitFor();
    await openTab(page, 'Diff');
    await page.getByText(wanted).first().waitFor();
    await look(page, 'diff');
  });
  await step('the sync dialog brings it in sync, with the keyboard alone', async () => {
    await page.getByRole('button', { name: 'Sync', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByRole('textbox', { name: 'Reason' }).fill('by hand');
    await look(page, 'sync');
    await page.getByRole('button', { name: 'Start sync' }).focus();
    await page.keyboard.press('Enter');
    await fact(page, 'Drift').getByText('In sync').waitFor();
    await page.getByText('No differences').waitFor();
    await look(page, 'diff-none');
  });
}

async function rest(page) {
  await step('an application whose repository cannot be read says why', async () => {
    await open(page, bad);
    await page.getByRole('alert').first().waitFor();
    await look(page, 'bad');
  });
  await step('an application that is not there says so', async () => {
    expected = ['status of 404'];
    await page.goto(`${url}/applications/argocd/nothing-here`);
    await page.getByRole('alert').waitFor();
    await look(page, 'gone');
    await page.goto(`${url}/no/such/page`);
    await page.getByText('There is no such page.').waitFor();
    await look(page, 'no-page');
    await page.getByRole('link', { name: 'Go to the applications' }).click();
    await heading(page, 'Applications');
    expected = [];
  });
  await step('sync windows show when they open, on the application and its project', async () => {
    await ask('freeze');
    await open(page, manual);
    await fact(page, 'Sync windows').getByText('Closed').first().waitFor();
    await fact(page, 'Sync windows')
      .getByText(/opens \w+ \d+ \w+, \d\d:\d\d/)
      .waitFor();
    await page.getByRole('button', { name: /^Sync windows/ }).click();
    await page.getByRole('table', { name: 'Sync windows of the application' }).getByText('freeze').waitFor();
    await look(page, 'windows');
    await page.keyboard.press('Escape');
    await place(page, 'Projects');
    await page.getByRole('table', { name: 'Sync windows of default' }).getByText('Active', { exact: true }).waitFor();
    await look(page, 'projects');
    await ask('thaw');
    await page.getByText('No sync windows: its applications may be synchronised at any time.').first().waitFor();
  });
  await step('the clusters show their agents', async () => {
    await place(page, 'Clusters');
    await page.getByRole('row').filter({ hasText: 'in-cluster' }).getByText('Connected').waitFor();
    await look(page, 'clusters');
  });
  await step('enrolment gives commands and waits for the agent', async () => {
    await page.getByRole('button', { name: 'Enroll a cluster' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('from-the-console');
    await page.getByRole('button', { name: 'Make a join token' }).click();
    await page.getByText('Waiting for the agent').waitFor();
    await look(page, 'enroll');
    await page.keyboard.press('Escape');
    await page.getByRole('row').filter({ hasText: 'from-the-console' }).getByText('Never connected').waitFor();
  });
  await step('the repositories show how their fetch went', async () => {
    await place(page, 'Repositories');
    await page.getByText('Successful').first().waitFor();
    await page.getByText('Failed').first().waitFor();
    await look(page, 'repositories');
    await page.getByRole('button', { name: 'Add a repository' }).click();
    await page.getByRole('dialog').getByRole('textbox', { name: 'URL' }).fill('no address');
    expected = ['status of 4'];
    await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await look(page, 'repository-wrong');
    await page.keyboard.press('Escape');
    expected = [];
  });
  await step('a setting that is wrong says where, and one that is right is kept', async () => {
    await place(page, 'Settings');
    await page.getByRole('button', { name: 'Set resource.exclusions' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Value' }).fill('- apiGroups: [velero.io]\n  kind: [Backup]\n');
    expected = ['status of 4'];
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByRole('alert').getByText('line 2').waitFor();
    await look(page, 'setting-wrong');
    expected = [];
    await dialog.getByRole('textbox', { name: 'Value' }).fill('- apiGroups: [velero.io]\n  kinds: [Backup]\n');
    await dialog.getByRole('button', { name: 'Check' }).click();
    await dialog.getByText('The value is fine.').waitFor();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('row').filter({ hasText: 'resource.exclusions' }).getByText('In use').waitFor();
    await look(page, 'settings');
    await page.getByRole('button', { name: 'Edit resource.exclusions' }).click();
    await dialog.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('button', { name: 'Set resource.exclusions' }).waitFor();
  });
}

const browser = await chromium.launch({
  executablePath: process.env['CAPSTAN_CHROMIUM'] ?? '/usr/bin/chromium',
  args: flags.split(' '),
  timeout: patience,
});
let failed = false;
const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce' });
try {
  page.setDefaultTimeout(patience);
  watch(page);
  for (const part of [account, list, automated, byHand, rest]) await part(page);
  await step('no page has a serious barrier', async () => {
    if (barriers.length > 0) throw new Error(`\n${[...new Set(barriers)].join('\n')}`);
  });
} catch (error) {
  failed = true;
  await page.screenshot({ path: join(shots, 'failure.png') }).catch(() => undefined);
  console.log(`FAILED ${error.message}\nat ${page.url()}`);
} finally {
  await browser.close();
}
process.exit(failed ? 1 : 0);
