// Journeys of people, with their clicks and times beside the budget: from the
// first sign-in to an application, a cluster's enrolment, a pause in an
// incident, who may and who did what, and a change of the access policy.
import { readFile } from 'node:fs/promises';
import type { Browser, Download, Locator, Page } from '@playwright/test';
import { allow, expect, heading, look, looks, picture, place, row, session, signIn, test } from './console';
import { patience } from './limits';
import { act, product } from './product';

/** Says what was measured: the output of the test has it. */
const figure = (name: string, value: string) => console.log(`figure: ${name}: ${value}`);

/** Counts what a person does, from now on. */
function counted(begun = Date.now()) {
  let clicks = 0;
  return {
    click: async (what: Locator) => {
      clicks++;
      await what.click();
    },
    tell: (journey: string, budget: string) =>
      figure(journey, `${clicks} clicks, ${((Date.now() - begun) / 1000).toFixed(1)} s (budget ${budget})`),
  };
}

const link = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true });
const button = (page: Page | Locator, name: string) => page.getByRole('button', { name, exact: true });

const question = (page: Page) =>
  page
    .getByRole('textbox', { name: 'What', exact: true })
    .or(page.getByRole('combobox', { name: 'What', exact: true }));

/** The console as another person sees it, in a browser of their own. */
async function another(browser: Browser): Promise<Page> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: 'reduce',
    storageState: { cookies: [], origins: [] },
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  return page;
}

const saved = async (download: Download) => readFile(await download.path(), 'utf8');

test('UX-ON-1 J1 from the start of the demo, one page leads to the sample application', async ({ page }) => {
  allow('status of 401'); // nobody is signed in yet
  const begun = Date.parse(await act('started'));
  const person = counted(begun);
  await page.goto(product.url);
  await heading(page, 'Sign in to Capstan');
  const shown = Date.now();
  await page.getByRole('textbox', { name: 'User name' }).fill(product.user);
  await page.getByLabel('Password', { exact: false }).first().fill(product.password);
  await person.click(button(page, 'Sign in'));
  await heading(page, 'Overview');
  await page.context().storageState({ path: session() });
  allow();
  const needs = page.getByRole('region', { name: 'Needs you now' });
  await needs.getByRole('link', { name: 'orders', exact: true }).waitFor();
  figure('J1 in the browser', `${((Date.now() - shown) / 1000).toFixed(1)} s from the sign-in to a sample`);
  person.tell('J1 from the start of the built demo', '1 command and 1 page, 5 min');
  await look(page, 'journey-first-look');
  await picture(page, 'overview');
  await person.click(link(page, 'Applications'));
  await row(page, 'guestbook').getByText('Healthy').waitFor();
  await row(page, 'guestbook').getByText('In sync').waitFor();
  await picture(page, 'applications');
  await page.getByRole('link', { name: 'orders', exact: true }).click();
  await heading(page, 'orders');
  await page.getByRole('region', { name: 'Cause', exact: true }).waitFor();
  await page.getByRole('region', { name: 'Resource tree' }).locator('.react-flow__node').first().waitFor();
  await picture(page, 'application');
});

test('UX-ON-4 UX-ON-5 J3 a cluster is enrolled with one copied command, and a failure has a name', async ({ page }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const copied = () => page.evaluate<string>('navigator.clipboard.readText()');
  const person = counted();
  await person.click(link(page, 'Clusters'));
  await person.click(button(page, 'Enrol a cluster'));
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Name' }).fill('prod-eu-1');
  await dialog.getByRole('textbox', { name: 'Labels' }).fill('env=prod');
  await person.click(button(dialog, 'Make a join token'));
  await dialog.getByText('Waiting for the agent …').waitFor();
  await person.click(dialog.getByText('Binary', { exact: true }));

  await button(dialog, 'Copy the check').click();
  const check = await copied();
  await look(page, 'journey-enroll');
  for (const [fault, says] of [
    ['none', [/ok +join token +good for cluster "prod-eu-1"/]],
    ['DNS', [/FAIL +name/, /hub\.invalid/, /DNS/]],
    ['proxy', [/FAIL +proxy/, /407/, /HTTPS_PROXY/]],
    ['TLS', [/FAIL +.*TLS/]],
    ['rights', [/FAIL +own rights/, /the agent may not/]],
  ] as const) {
    const said = await act('check', `${fault} ${check}`);
    for (const words of says) expect(said, `the check with the fault ${fault}`).toMatch(words);
    if (fault === 'none') expect(said).not.toContain('FAIL');
    figure(`J3 the check with the fault ${fault}`, said.split('\n').find((l) => l.includes('FAIL')) ?? 'no failure');
  }
  await dialog.getByText('Waiting for the agent …').waitFor(); // a check uses up no token

  await person.click(button(dialog, 'Copy'));
  const run = Date.now();
  await act('enroll', await copied());
  await dialog.getByText('The agent is connected.').waitFor();
  await dialog.locator('li[data-step="inventory"][data-state="done"]').waitFor();
  figure('J3 green by itself', `${((Date.now() - run) / 1000).toFixed(1)} s after the command ran (budget 60 s)`);
  person.tell('J3', '1 copied command');
  await look(page, 'journey-enrolled');
  await picture(page, 'enroll');
  await dialog.getByRole('link', { name: 'Open cluster' }).click();
  await heading(page, 'prod-eu-1');
});

test('UX-OP-9 J8 one switch pauses a cluster in an incident, and everybody concerned sees why', async ({
  page,
  browser,
}) => {
  const colleague = await another(browser);
  const password = await act('person', 'olga readonly');
  await colleague.goto(product.url);
  await signIn(colleague, 'olga', password);
  await heading(colleague, 'Overview');

  await place(page, 'Clusters');
  await page.getByRole('link', { name: 'in-cluster', exact: true }).click();
  await heading(page, 'in-cluster');
  const person = counted();
  await person.click(button(page, 'Pause automation'));
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Reason' }).fill('the payment provider is down');
  await person.click(dialog.getByText('4 hours', { exact: true }));
  await person.click(button(dialog, 'Pause automation'));
  const banner = 'Automation is paused on in-cluster';
  const here = page.getByRole('complementary', { name: banner });
  await here.getByText(/by admin .*, until .*: The payment provider is down\./).waitFor();
  person.tell('J8 pause a cluster', '1 switch with reason and expiry');
  const paused = Date.now();
  const there = colleague.getByRole('complementary', { name: banner });
  await there.getByText(/by admin .*, until .*: The payment provider is down\./).waitFor();
  figure('J8 the banner of a second person', `${((Date.now() - paused) / 1000).toFixed(1)} s later, without a reload`);
  await expect(button(there, 'Resume automation')).toBeHidden(); // that person may not
  await look(page, 'journey-paused');
  await picture(page, 'pause');

  await act('push', 'paused');
  await place(page, 'Applications');
  await row(page, 'guestbook').getByText('Drifted').waitFor();
  await here.waitFor();
  const back = counted();
  await back.click(button(here, 'Resume automation'));
  await row(page, 'guestbook').getByText('In sync').waitFor();
  await here.waitFor({ state: 'detached' });
  back.tell('J8 resume, and what was pushed meanwhile is deployed', '1 switch');
  await there.waitFor({ state: 'detached' });
  await colleague.context().close();
});

test('UX-OP-9 J8 one switch pauses the whole tenant', async ({ page, browser }) => {
  const colleague = await another(browser);
  await colleague.goto(product.url);
  const password = await act('person', 'piet readonly');
  await signIn(colleague, 'piet', password);
  await heading(colleague, 'Overview');
  await place(page, 'Clusters');
  const person = counted();
  await person.click(button(page, 'Pause all automation'));
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Reason' }).fill('network maintenance');
  await person.click(button(dialog, 'Pause automation'));
  const banner = 'All automation is paused';
  await page.getByRole('complementary', { name: banner }).waitFor();
  person.tell('J8 pause the tenant', '1 switch with reason and expiry');
  await colleague.getByRole('complementary', { name: banner }).getByText('Network maintenance.').waitFor();
  await button(page.getByRole('complementary', { name: banner }), 'Resume automation').click();
  await page.getByRole('complementary', { name: banner }).waitFor({ state: 'detached' });
  await colleague.context().close();
});

test('UX-ACC-2 UX-ACC-5 J9 one query says who may delete in prod and by which rule, one who did what on a day', async ({
  page,
}) => {
  await act('prod');
  const [nobody, onCall] = [await act('person', 'nils readonly'), await act('person', 'oscar')];
  expect(onCall).not.toBe('');
  expect(await act('delete-prod', `nils ${nobody}`)).toBe('403');

  const person = counted();
  await person.click(link(page, 'Access'));
  await person.click(page.getByRole('tab', { name: 'Who can' }));
  await question(page).fill('delete applications prod/*');
  await page.keyboard.press('Escape'); // closes the samples
  await person.click(button(page, 'Ask'));
  const answer = page.getByRole('table', { name: 'Who can' });
  const olga = answer.getByRole('row').filter({ hasText: 'olga' });
  await olga.getByText('p, role:on-call, applications, delete, prod/*, allow').waitFor();
  await olga.getByText('policy.csv, line 2').waitFor();
  await expect(answer.getByText('nils')).toHaveCount(0);
  const [rights] = await Promise.all([page.waitForEvent('download'), person.click(button(page, 'Export'))]);
  const exported: { question: { object: string }; items: { subject: string; rule: string; line: number }[] } =
    JSON.parse(await saved(rights));
  expect(exported.question.object).toBe('prod/*');
  expect(exported.items.find((i) => i.subject === 'olga')).toMatchObject({ line: 2 });
  person.tell('J9 who may delete in prod', '1 query');
  await look(page, 'journey-who-can');
  await picture(page, 'who-can');

  const next = counted();
  await next.click(link(page, 'Activity'));
  const day = (offset: number) => {
    const at = new Date(Date.now() + offset * 86_400_000);
    return [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((n) => String(n).padStart(2, '0')).join('-');
  };
  const date = page.getByLabel('On the day, or from it on');
  await date.fill(day(-7));
  await page.getByText('Nothing matches the search.').waitFor();
  await date.fill(day(0));
  await page.getByLabel('Up to the day').fill(day(0));
  await page.getByRole('textbox', { name: 'Actor' }).fill('nils');
  const records = page.getByRole('table', { name: 'Activity' });
  const refusal = records.getByRole('row').filter({ hasText: 'checkout' }).filter({ hasText: 'Denied' });
  await refusal.first().waitFor();
  const [log] = await Promise.all([page.waitForEvent('download'), next.click(button(page, 'Export what is found'))]);
  expect(await saved(log)).toMatch(/checkout/);
  next.tell('J9 who did what on a day', '1 query');
  await look(page, 'journey-who-did');
  await picture(page, 'activity');
  await refusal.first().getByRole('button').click();
  await page.getByRole('dialog').getByText('nils').first().waitFor();
  await page.keyboard.press('Escape');
});

/** Replaces the text of an editor. */
async function write(page: Page, editor: string, text: string) {
  const field = page.getByRole('textbox', { name: editor, exact: true });
  await field.focus();
  await page.keyboard.press('Control+a');
  // Chromium styles what replaces a selection, which the content security policy refuses.
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(text);
}

test('UX-ACC-1 J10 a policy is written, tested, seen in its effect and published', async ({ browser }) => {
  const page = await another(browser);
  await page.goto(await act('tenant', 'shop'));
  await page.getByRole('textbox', { name: 'User name' }).fill('tina');
  await page.getByLabel('Password', { exact: false }).first().fill('a long enough password');
  await button(page, 'Create account').click();
  await heading(page, 'Overview');

  const person = counted();
  await person.click(link(page, 'Access'));
  await person.click(page.getByRole('tab', { name: 'Policy' }));
  const checks = page.getByRole('complementary', { name: 'Checks' });
  const save = button(page, 'Save policy');
  await write(page, 'Policy: Rules', '# developers\np, role:dev, applications, *, shop/*, allow\ng, dora, role:dev\n');
  await checks.getByText('dora').first().waitFor();
  await person.click(page.getByText('Tests', { exact: true }).first());
  await write(
    page,
    'Policy: Tests',
    't, dora, applications, sync, shop/web, allow\nt, dora, applications, delete, shop/web, deny\n',
  );
  await checks.getByText('A test fails').waitFor();
  await checks.getByText('1 of 2 pass').waitFor();
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await look(page, 'journey-policy-fails');
  await person.click(page.getByText(/^Rules/).first());
  await write(
    page,
    'Policy: Rules',
    '# developers\np, role:dev, applications, sync, shop/*, allow\ng, dora, role:dev\n',
  );
  await checks.getByText('Every test passes').waitFor();
  const effects = checks.getByRole('region', { name: 'What changes for whom' });
  await effects.getByText('dora sync applications').waitFor();
  await expect(effects.getByText('dora delete applications')).toHaveCount(0);
  await look(page, 'journey-policy');
  await picture(page, 'policy');
  await person.click(save);
  await checks
    .getByRole('button', { name: /^Version \d+$/ })
    .first()
    .waitFor();
  person.tell('J10', 'tests pass before save, effective rights shown');

  await page.getByRole('tab', { name: 'Who can' }).click();
  await question(page).fill('sync applications shop/web');
  await page.keyboard.press('Escape');
  await page.getByLabel('By whom').fill('dora');
  await button(page, 'Ask').click();
  await page.getByText('dora may sync applications shop/web.').waitFor();
  await page.getByText(/p, role:dev, applications, sync, shop\/\*, allow · .*line 2/).waitFor();
  await page.context().close();
});

test('UX-A11-1 nothing of the journeys has a serious barrier', () => {
  expect(looks().flatMap((l) => l.barriers)).toEqual([]);
});
