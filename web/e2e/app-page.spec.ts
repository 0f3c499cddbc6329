// The page of an application in whole: panel of an object, logs, diff, sync,
// and the journeys of people who look for a cause or go back.
import { existsSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { allow, expect, heading, look, looks, place, row, session, test } from './console';
import { act, product } from './product';

const app = 'shop';
const panel = (page: Page) => page.getByRole('complementary');
const log = (page: Page) => page.getByRole('log', { name: 'Log' });
const address = (search = '') => `${product.url}/applications/argocd/${app}${search}`;
const objectAt = (ref: string, more = '') => address(`?object=${encodeURIComponent(ref)}${more}`);

/** Says what was measured: the output of the test has it. */
const figure = (name: string, value: string) => console.log(`figure: ${name}: ${value}`);

/** Counts what a person does on a page. */
function counted(page: Page) {
  const begun = Date.now();
  let clicks = 0;
  return {
    click: async (...found: Parameters<Page['getByRole']>) => {
      clicks++;
      await page
        .getByRole(...found)
        .first()
        .click();
    },
    clicks: () => clicks,
    tell: (journey: string, budget: string) =>
      figure(journey, `${clicks} clicks, ${((Date.now() - begun) / 1000).toFixed(1)} s (budget ${budget})`),
  };
}

test('UI-18 the account of this spec', async ({ page }) => {
  test.skip(existsSync(session()), 'the sign-in is there');
  await page.goto(product.setupLink);
  await page.getByRole('textbox', { name: 'User name' }).fill(product.user);
  await page.getByLabel('Password', { exact: false }).first().fill(product.password);
  await page.getByRole('button', { name: 'Create account' }).click();
  await heading(page, 'Overview');
  await page.context().storageState({ path: session() });
});

test('J5 UX-LOG-1 why an application is red is seen with one click, the log of the container with two', async ({
  page,
}) => {
  await place(page, 'Applications');
  await row(page, app).waitFor();
  const person = counted(page);
  await person.click('link', { name: app, exact: true });
  const cause = page.getByRole('region', { name: 'Cause' });
  await cause.getByText(/Pod broken-.*: The container crashes again and again since .*/).waitFor();
  expect(person.clicks()).toBeLessThanOrEqual(2);
  person.tell('J5 the cause', '2 clicks, 15 s');
  await look(page, 'app-cause');
  await person.click('button', { name: 'Open its logs' });
  await log(page).getByText('cannot open the database').waitFor();
  expect(person.clicks()).toBeLessThanOrEqual(3);
  person.tell('J5 the line of the log', '3 clicks');
  await look(page, 'app-panel-logs');
});

test('UI-07(part) the panel has summary, YAML, events, related objects and actions of a pod', async ({ page }) => {
  const pod = await act('broken-pod');
  await page.goto(objectAt(`/Pod/${app}/${pod}`));
  await panel(page).getByRole('heading', { name: pod }).waitFor();
  const containers = panel(page).getByRole('region', { name: 'Containers' });
  await containers.getByRole('row', { name: /app .*CrashLoopBackOff/ }).waitFor();
  await panel(page).getByText('registry.example.com/broken:v1').waitFor();
  await look(page, 'app-panel-summary');
  await panel(page).getByRole('tab', { name: 'YAML' }).click();
  await panel(page).getByTestId('yaml').getByText('apiVersion').first().waitFor();
  expect(await panel(page).getByTestId('yaml').getByText('managedFields').count()).toBe(0);
  await panel(page).getByRole('tab', { name: 'Related' }).click();
  await panel(page)
    .getByRole('region', { name: 'Owned by' })
    .getByRole('button', { name: 'broken', exact: true })
    .click();
  await panel(page).getByRole('heading', { name: 'broken', exact: true }).waitFor();
  await panel(page).getByText('0 of 1 ready').waitFor();
  // Back leads to the pod, with the tab that was open.
  await page.goBack();
  await panel(page).getByRole('heading', { name: pod }).waitFor();
  await panel(page).getByRole('tab', { name: 'Related', selected: true }).waitFor();
});

test('UI-07(part) UX-LOG-4 events of an object come warnings first', async ({ page }) => {
  const pod = await act('warn');
  await page.goto(objectAt(`/Pod/${app}/${pod}`, '&panel=events'));
  const events = panel(page).getByRole('list', { name: 'Events, warnings first' }).getByRole('listitem');
  await events.first().getByText('BackOff', { exact: true }).waitFor();
  await look(page, 'app-panel-events');
  await page.goto(address('?tab=events'));
  await page.getByRole('list', { name: 'Events, warnings first' }).getByText('BackOff', { exact: true }).waitFor();
});

test('UX-APP-8(part) the values of a Secret are in no tab', async ({ page }) => {
  await page.goto(objectAt(`/Secret/${app}/token`));
  await panel(page).getByRole('region', { name: 'Keys' }).getByText('masked').waitFor();
  await panel(page).getByRole('tab', { name: 'YAML' }).click();
  await panel(page).getByTestId('yaml').getByText('value', { exact: false }).first().waitFor();
  const text = await panel(page).innerText();
  for (const secret of ['ssssssss', 'c3Nzc3Nz']) expect(text).not.toContain(secret);
});

test('UI-07(part) an edit is checked by a dry run of the API server before it is made', async ({ page }) => {
  await page.goto(objectAt(`/ConfigMap/${app}/settings`, '&panel=yaml'));
  await panel(page).getByRole('button', { name: 'Edit' }).click();
  const text = panel(page).getByRole('textbox', { name: 'YAML of ConfigMap settings' });
  const before = await text.inputValue();
  allow('status of 4'); // the API server refuses
  await text.fill(before.replace('kind: ConfigMap', 'kind: ConfigMap\nimmutable: "no"'));
  await panel(page).getByRole('button', { name: 'Check by dry run' }).click();
  await panel(page).getByRole('alert').waitFor();
  allow();
  await text.fill(before.replace('same: "1"', 'same: "2"'));
  await panel(page).getByRole('button', { name: 'Check by dry run' }).click();
  await panel(page).getByText('The API server accepts the change.').waitFor();
  await panel(page).getByTestId('diff').locator('ins').first().waitFor();
  await look(page, 'app-panel-edit');
  expect(await act('setting')).toBe('1');
  await panel(page).getByRole('button', { name: 'Apply the change' }).click();
  await panel(page).getByRole('button', { name: 'Edit' }).waitFor();
  expect(await act('setting')).toBe('2');
});

test('UX-OP-12 an action says what it changes, and waits for a confirmation', async ({ page }) => {
  await page.goto(objectAt(`apps/Deployment/${app}/web`, '&panel=actions'));
  const actions = panel(page).getByRole('list', { name: 'Actions' });
  await actions.getByRole('button', { name: 'restart', exact: false }).first().click();
  await panel(page).getByRole('group', { name: 'Confirm' }).getByText('Its pods are replaced').waitFor();
  await look(page, 'app-panel-actions');
  await panel(page).getByRole('button', { name: 'Cancel' }).click();
  await panel(page).getByRole('region', { name: 'Delete the object' }).getByRole('button', { name: 'Delete' }).click();
  await panel(page).getByText('Git still has it').waitFor();
  await panel(page).getByRole('button', { name: 'Cancel' }).click();
});

test('UX-NAV-8(part) the panel is moved, made a full page and closed with the keyboard', async ({ page }) => {
  await page.goto(objectAt(`/Service/${app}/web`));
  const grip = panel(page).getByRole('separator', { name: 'Width of the panel' });
  const width = async () => (await panel(page).boundingBox())?.width ?? 0;
  await grip.focus();
  const before = await width();
  await page.keyboard.press('ArrowLeft');
  await expect(grip).toHaveAttribute('aria-valuenow', String(before + 32));
  expect(await width()).toBe(before + 32);
  await page.keyboard.press('f');
  await expect(panel(page)).toHaveAttribute('data-full', 'true');
  expect(page.url()).toContain('full=yes');
  await look(page, 'app-panel-full');
  await page.keyboard.press('f');
  await page.keyboard.press('Escape');
  await panel(page).waitFor({ state: 'detached' });
});

test('UI-13 UX-LOG-2(part) the log is searched, filtered, inverted, wrapped, and its lines of JSON are columns', async ({
  page,
}) => {
  await page.goto(objectAt(`apps/Deployment/${app}/web`, '&panel=logs&full=yes'));
  const viewer = page.getByRole('region', { name: 'Log viewer' });
  await log(page).getByText('order 99', { exact: false }).waitFor();
  await viewer.getByRole('region', { name: 'Pods' }).waitFor();
  const find = viewer.getByRole('textbox', { name: 'Find in the log' });
  await find.fill('orders_v2');
  await viewer.getByText(/of 3$|^3$/).waitFor();
  await find.press('Enter');
  await viewer.getByText('1 of 3').waitFor();
  await find.press('Enter');
  await viewer.getByText('2 of 3').waitFor();
  await find.press('Shift+Enter');
  await viewer.getByText('1 of 3').waitFor();
  await log(page).locator('mark').first().waitFor();
  await viewer.getByRole('button', { name: 'Match case' }).click();
  await find.fill('ORDERS_V2');
  await viewer.locator('.log-count').getByText(/^0$/).waitFor();
  await find.fill('');
  const filter = viewer.getByRole('textbox', { name: 'Filter lines' });
  await filter.fill('GET');
  await expect(log(page).getByText('orders_v2')).toHaveCount(0);
  await viewer.getByRole('switch', { name: 'Invert' }).click();
  await log(page).getByText('orders_v2').first().waitFor();
  await expect(log(page).getByText('"GET')).toHaveCount(0);
  await viewer.getByRole('switch', { name: 'Invert' }).click();
  await viewer.getByRole('button', { name: 'As columns' }).click();
  await log(page).locator('.log-columns').first().waitFor();
  await look(page, 'app-logs-columns');
  await viewer.getByRole('button', { name: 'As text' }).click();
  await viewer.getByRole('button', { name: /Wrap lines/ }).click();
  await expect(log(page)).toHaveAttribute('data-wrap', 'true');
  await viewer.getByRole('switch', { name: 'Times' }).click();
  await expect(log(page).locator('.log-time')).toHaveCount(0);
  expect(new URL(page.url()).searchParams.get('log')).toContain('wrap=yes');
});

test('UI-13 UX-LOG-2(part) levels, one container, the instance before, and a link to a line', async ({ page }) => {
  await page.goto(objectAt(`apps/Deployment/${app}/web`, '&panel=logs&full=yes'));
  const viewer = page.getByRole('region', { name: 'Log viewer' });
  await viewer
    .getByRole('group', { name: 'Level' })
    .getByRole('button', { name: /3 errors/ })
    .click();
  await expect(log(page).locator('.log-line')).toHaveCount(3);
  await log(page).locator('.log-line').first().click();
  const line = viewer.getByRole('region', { name: /^Line / });
  await line.getByText('orders_v2').waitFor();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await line.getByRole('button', { name: 'Copy link' }).click();
  const link = await page.evaluate<string>('navigator.clipboard.readText()');
  await page.goto(link);
  await viewer.getByText('Lines around a link').waitFor();
  await log(page).locator('.log-line[data-current="true"]').getByText('orders_v2').waitFor();
  await page.goto(objectAt(`apps/Deployment/${app}/web`, `&panel=logs&log=${encodeURIComponent('container=side')}`));
  await log(page).getByText('a word of the side').first().waitFor();
  await expect(log(page).getByText('order 99', { exact: false })).toHaveCount(0);
  await page.goto(
    objectAt(`apps/Deployment/${app}/web`, `&panel=logs&log=${encodeURIComponent('container=app&previous=yes')}`),
  );
  await log(page).getByText('panic before').first().waitFor();
  await viewer.getByText('Complete: nothing more comes').waitFor();
});

test('UI-13 what is downloaded is what the hub has, with times', async ({ page }) => {
  await page.goto(objectAt(`apps/Deployment/${app}/web`, `&panel=logs&log=${encodeURIComponent('container=app')}`));
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download' }).click(),
  ]);
  const stream = await file.createReadStream();
  let text = '';
  for await (const piece of stream) text += piece;
  expect(text).toMatch(/\d{4}-\d\d-\d\dT\S+ .*order 99/);
});

test('UI-06 external traffic is followed over Ingress and Service to the pods, by keyboard too', async ({ page }) => {
  await page.goto(address('?view=network'));
  const ways = page.getByRole('group', { name: 'Ways of traffic' });
  const service = ways.getByRole('button', { name: /^web\b.*Service · ClusterIP.*from web; to web-.*, web-/ });
  await service.waitFor();
  await ways.getByRole('button', { name: /^web\b.*Ingress · shop\.example\.com.*from Outside; to web$/ }).waitFor();
  await look(page, 'app-network');
  await ways.getByRole('button', { name: /^Outside/ }).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await expect(service).toBeFocused();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await panel(page).getByRole('heading', { name: /^web-/ }).waitFor();
});

test('UI-13 the log fills the screen with its menus, and what is shown is copied', async ({ page }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: product.url });
  await page.goto(
    objectAt(`apps/Deployment/${app}/web`, `&panel=logs&log=${encodeURIComponent('filter=orders_v2&times=no')}`),
  );
  const viewer = page.getByRole('region', { name: 'Log viewer' });
  await log(page).getByText('relation "orders_v2" does not exist').first().waitFor();
  await viewer.getByRole('button', { name: 'Full screen' }).click();
  await expect.poll(() => page.evaluate('document.fullscreenElement !== null')).toBe(true);
  const whole = async () => {
    const box = await viewer.boundingBox();
    const inner = await page.evaluate<[number, number]>('[innerWidth, innerHeight]');
    return box !== null && box.width === inner[0] && box.height === inner[1];
  };
  await expect.poll(whole).toBe(true);
  await look(page, 'app-logs-full');
  await viewer.getByRole('button', { name: 'Copy what is shown' }).click();
  await viewer.getByText('3 lines copied.').waitFor();
  const copied = await page.evaluate<string>('navigator.clipboard.readText()');
  expect(copied.split('\n')).toEqual(Array(3).fill('ERROR relation "orders_v2" does not exist'));
  // A menu of the viewer is above it.
  await viewer.getByRole('combobox', { name: 'Container', exact: true }).click();
  await page.getByRole('option', { name: 'app', exact: true }).click();
  await log(page).getByText('relation "orders_v2" does not exist').first().waitFor();
  await viewer.getByRole('button', { name: 'Leave full screen' }).click();
  await expect.poll(() => page.evaluate('document.fullscreenElement === null')).toBe(true);
  await expect.poll(whole).toBe(false);
});

test('UI-13 what is written now is followed, until one scrolls away', async ({ page }) => {
  await page.goto(address('?tab=logs'));
  const viewer = page.getByRole('region', { name: 'Log viewer' });
  await viewer.getByRole('button', { name: 'Following' }).waitFor();
  await act('say');
  await log(page).getByText('said just now').waitFor();
  await look(page, 'app-logs');
  await log(page).evaluate('document.querySelector(".log-rows").scrollTop = 0');
  await viewer.getByRole('button', { name: 'Follow', exact: true }).waitFor();
});

test('UI-08 UX-DIF-1 UX-DIF-6(part) the diff has counts, folds, words, and what is dangerous first', async ({
  page,
}) => {
  await act('push-danger');
  await page.goto(address('?tab=diff'));
  const first = page.getByRole('region', { name: 'Look at these first' });
  await first.getByText('Scales to 0 replicas').waitFor();
  const list = page.getByRole('navigation', { name: 'Objects that differ' });
  await expect(list.getByRole('button').first()).toContainText('web');
  await page.getByText(/2 changed/).waitFor();
  const settings = page.getByRole('region', { name: `ConfigMap ${app}/settings` });
  await settings.scrollIntoViewIfNeeded(); // what is far down is drawn then
  await settings.locator('ins').first().waitFor();
  await look(page, 'app-diff');
  const web = page.getByRole('region', { name: `Deployment ${app}/web` });
  const folds = await web.locator('.diff-fold').count();
  expect(folds).toBeGreaterThan(0);
  await web.locator('.diff-fold button').first().click();
  await expect(web.locator('.diff-fold')).toHaveCount(folds - 1);
  await page.keyboard.press('j');
  await page.getByText('Change 1 of').waitFor();
  await page.keyboard.press('j');
  await page.getByText('Change 2 of').waitFor();
  await page.keyboard.press('k');
  await page.getByText('Change 1 of').waitFor();
  await page.keyboard.press('u');
  await page.locator('.diff-table[data-mode="unified"]').first().waitFor();
  expect(page.url()).toContain('mode=unified');
  await list.getByRole('textbox', { name: 'Find changes' }).fill('settings');
  await expect(list.getByRole('listitem')).toHaveCount(1);
  // Defaults of the API server are no fields of ours.
  await expect(page.getByText('progressDeadlineSeconds')).toHaveCount(0);
  await list.getByRole('textbox', { name: 'Find changes' }).fill('');
  await page.getByRole('switch', { name: 'Only fields from Git' }).click();
  await web.getByText('progressDeadlineSeconds').first().waitFor();
  await act('push-back');
});

test('UI-09 UX-OP-1 the plan of a sync comes first, and what is picked is applied alone', async ({ page }) => {
  await act('push-flag');
  await page.goto(address());
  await page.getByRole('button', { name: 'Sync', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: `Sync ${app}` });
  const plan = dialog.getByRole('region', { name: 'Plan' });
  await plan.getByText('1 created, 1 changed, 0 of 1 deleted').waitFor();
  await plan.getByRole('checkbox', { name: 'change ConfigMap settings' }).waitFor();
  await plan.getByText('data.v').waitFor();
  await plan.locator('ins').first().waitFor();
  await dialog.getByRole('switch', { name: /^Prune/ }).click();
  await plan.getByText('1 created, 1 changed, 1 deleted').waitFor();
  await look(page, 'app-sync');
  // A choice that has no effect is explained.
  await dialog.getByRole('switch', { name: /^Dry run/ }).click();
  await dialog.getByRole('switch', { name: /^Retry on failure/ }).click();
  await dialog.getByRole('list', { name: 'Without effect' }).getByText('A dry run is not tried again.').waitFor();
  await dialog.getByRole('switch', { name: /^Dry run/ }).click();
  await dialog.getByRole('switch', { name: /^Retry on failure/ }).click();
  await plan.getByRole('checkbox', { name: 'create ConfigMap extra' }).click();
  await dialog.getByRole('textbox', { name: 'Reason' }).fill('picked by hand');
  await dialog.getByRole('button', { name: 'Start sync of 2 changes' }).click();
  await page.getByRole('tab', { name: 'Last operation', selected: true }).waitFor();
  await page.getByText('picked by hand', { exact: false }).first().waitFor();
  await page.getByRole('tabpanel').getByText('Succeeded').first().waitFor();
  expect(await act('live')).toBe('settings=on extra=absent old=absent');
});

test('UX-OP-1 the last choice is kept for the application', async ({ page }) => {
  await page.goto(address('?open=sync'));
  const dialog = page.getByRole('dialog', { name: `Sync ${app}` });
  await expect(dialog.getByRole('switch', { name: /^Prune/ })).toBeChecked();
  await expect(dialog.getByRole('switch', { name: /^Dry run/ })).not.toBeChecked();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
});

test('UX-OP-2(part) phases, waves and hooks of an operation are steps, and it can be terminated and retried', async ({
  page,
}) => {
  allow('/revisions/'); // a commit that the next one replaces at once is not known when the page asks for its author
  await act('push-flag');
  await act('push-hook');
  await page.goto(address('?open=sync'));
  await page
    .getByRole('dialog')
    .getByRole('button', { name: /^Start sync/ })
    .click();
  const steps = page.getByRole('list', { name: 'Phases and waves' });
  await steps.getByRole('heading', { name: /PreSync, wave 0/ }).waitFor();
  await steps.getByText('Running').first().waitFor();
  await look(page, 'app-operation');
  await page.getByRole('button', { name: 'Terminate the operation' }).click();
  await page.getByRole('button', { name: 'Retry with the same options' }).waitFor();
  await act('push-no-hook');
  await page.getByRole('button', { name: 'Retry with the same options' }).click();
  await page.getByRole('tabpanel').locator('.op-head').getByText('Succeeded').waitFor();
  await page.getByRole('table', { name: 'Earlier operations' }).getByText('Failed').first().waitFor();
  allow();
});

test('J7 UX-OP-7 the last release is rolled back with three clicks, and the pause is resumed', async ({ page }) => {
  await page.goto(address());
  await heading(page, app);
  const person = counted(page);
  await person.click('tab', { name: 'History' });
  await person.click('button', { name: 'Roll back to this' });
  const dialog = page.getByRole('dialog');
  await dialog.getByText(/is then paused/).waitFor();
  await dialog.getByRole('region', { name: 'What changes' }).getByText('ConfigMap').first().waitFor();
  await dialog.getByRole('textbox', { name: 'Reason' }).fill('it was bad');
  await look(page, 'app-rollback');
  await person.click('button', { name: 'Roll back', exact: true });
  await page
    .getByText(/rolled back by .* because it was bad/)
    .first()
    .waitFor();
  expect(person.clicks()).toBeLessThanOrEqual(3);
  person.tell('J7 a rollback with a reason', '3 clicks');
  await look(page, 'app-paused');
  await page.getByRole('group', { name: 'Last operation' }).getByText('Succeeded').waitFor(); // the rollback
  await page.getByRole('button', { name: 'Resume auto-sync' }).click();
  await page.getByRole('button', { name: 'Resume auto-sync' }).waitFor({ state: 'detached' });
});

/** Presses Tab until what has the focus is what is looked for, and returns how often. */
async function tabTo(page: Page, wanted: RegExp, most = 120): Promise<number> {
  for (let n = 1; n <= most; n++) {
    await page.keyboard.press('Tab');
    const name = await page.evaluate<string>(
      '((e) => (e?.getAttribute("aria-label") || e?.textContent || "").trim())(document.activeElement)',
    );
    if (wanted.test(name)) return n;
  }
  throw new Error(`the keyboard does not reach ${wanted}`);
}

test('J14 J5 with the keyboard alone', async ({ page }) => {
  await page.goto(`${product.url}/applications`);
  await row(page, app).waitFor();
  const begun = Date.now();
  let keys = (await tabTo(page, /^shop$/)) + 1;
  await page.keyboard.press('Enter');
  await heading(page, app);
  keys += (await tabTo(page, /^Pod broken-/)) + 1;
  await page.keyboard.press('Enter');
  await panel(page).waitFor();
  // The panel has the focus, and says its name.
  await page.waitForFunction(() => /^broken-/.test(document.activeElement?.textContent ?? ''));
  keys += await tabTo(page, /^Summary$/);
  for (const tab of ['YAML', 'Events', 'Logs']) {
    await page.keyboard.press('ArrowRight');
    keys++;
    await panel(page).getByRole('tab', { name: tab, selected: true }).waitFor();
  }
  await log(page).getByText('cannot open the database').waitFor();
  await page.keyboard.press('Escape');
  await panel(page).waitFor({ state: 'detached' });
  figure('J14 J5 by keyboard', `${keys} keys, ${((Date.now() - begun) / 1000).toFixed(1)} s`);
});

test('J14 J7 with the keyboard alone', async ({ page }) => {
  await page.goto(address());
  await heading(page, app);
  const begun = Date.now();
  let keys = await tabTo(page, /^Resources ?\d/);
  while (!(await page.getByRole('tab', { name: 'History', selected: true }).count())) {
    await page.keyboard.press('ArrowRight');
    keys++;
  }
  await page.getByRole('button', { name: 'Roll back to this' }).first().waitFor();
  keys += (await tabTo(page, /^Roll back to this$/)) + 1;
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByText(/is then paused/).waitFor();
  await dialog.getByRole('textbox', { name: 'Reason' }).waitFor();
  keys += await tabTo(page, /^$/);
  while (!(await page.evaluate<boolean>('document.activeElement?.tagName === "INPUT"'))) {
    await page.keyboard.press('Tab');
    keys++;
  }
  await page.keyboard.type('by keyboard');
  keys += (await tabTo(page, /^Roll back$/)) + 1;
  await page.keyboard.press('Enter');
  await page
    .getByText(/because by keyboard/)
    .first()
    .waitFor();
  figure('J14 J7 by keyboard', `${keys} keys and a reason, ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  await page.getByRole('group', { name: 'Last operation' }).getByText('Succeeded').waitFor(); // the rollback
  await page.getByRole('button', { name: 'Resume auto-sync' }).click();
  await page.getByRole('button', { name: 'Resume auto-sync' }).waitFor({ state: 'detached' });
});

test('UX-A11-7(part) each tab has its state for nothing, for what fails, and for what is forbidden', async ({
  page,
}) => {
  const tabs = ['diff', 'operation', 'history', 'events', 'logs'];
  const said: Record<string, string> = {
    diff: 'No differences',
    operation: 'Nothing has been deployed yet.',
    history: 'Nothing has been deployed yet.',
    events: 'No events.',
    logs: 'The application has no pods.',
  };
  await act('empty');
  for (const tab of tabs) {
    await page.goto(`${product.url}/applications/argocd/bare?tab=${tab}`);
    await page
      .getByText(said[tab] ?? '')
      .first()
      .waitFor();
    await look(page, `app-empty-${tab}`);
  }
  allow('Failed to load resource');
  const answers = [
    {
      status: 503,
      body: { message: 'the agent of cluster in-cluster is not connected', fix: 'wait until it is' },
      says: /is not connected/,
    },
    { status: 403, body: { message: 'you may not read this' }, says: /you may not read this/i },
  ];
  const paths: Record<string, string> = {
    diff: 'diff',
    history: 'history',
    events: 'events',
    logs: 'logs',
    tree: 'tree',
  };
  for (const { status, body, says } of answers) {
    for (const [tab, path] of Object.entries(paths)) {
      const pattern = new RegExp(`/api/v1/applications/argocd/${app}/${path}(\\?|$)`);
      await page.route(pattern, (route) => route.fulfill({ status, json: body }));
      await page.goto(address(tab === 'tree' ? '' : `?tab=${tab}`));
      await page.getByRole('tabpanel').getByRole('alert').getByText(says).first().waitFor();
      if (tab === 'diff' || tab === 'logs') await look(page, `app-${status}-${tab}`);
      await page.unroute(pattern);
    }
  }
  allow();
});

test('UX-A11-1 no state of the page has a serious barrier', () => {
  const all = looks();
  expect(all.flatMap((l) => l.barriers)).toEqual([]);
  expect(all.length).toBeGreaterThan(0);
});
