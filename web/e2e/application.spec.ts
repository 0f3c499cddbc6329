import { fact, look, mark, notReloaded, open, openTab, place, row, test } from './console';
import { act, product } from './product';

const { app, manual } = product;

test('UI-05 the application page shows the tree with what Kubernetes made', async ({ page }) => {
  await open(page, app);
  const tree = page.getByRole('region', { name: 'Resource tree' });
  for (const kind of ['Deployment', 'ReplicaSet', 'Pod'])
    await tree.getByText(kind, { exact: false }).first().waitFor();
  await look(page, 'tree');
});

test('UX-A11-2 the focus goes to the heading, and back to what opened a panel', async ({ page }) => {
  await place(page, 'Applications');
  await row(page, app).getByRole('link', { name: app, exact: true }).click();
  await page.waitForFunction((name) => document.activeElement?.textContent?.trim() === name, app);
  const box = page.getByRole('region', { name: 'Resource tree' }).getByRole('button', { name: /^Deployment / });
  await box.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('complementary').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('complementary').waitFor({ state: 'detached' });
  await page.waitForFunction(() => /^Deployment /.test(document.activeElement?.getAttribute('aria-label') ?? ''));
});

test('UX-APP-1 a push appears as the new revision, live', async ({ page }) => {
  await mark(page);
  const revision = (await act('push')).slice(0, 8);
  await fact(page, 'Drift').getByText(revision).waitFor();
  await fact(page, 'Drift').getByText('In sync').waitFor();
  await fact(page, 'Health').getByText('Healthy').first().waitFor();
  await notReloaded(page);
});

test('UI-10 the last operation lists its objects', async ({ page }) => {
  await openTab(page, 'Last operation');
  await page.getByRole('row').filter({ hasText: 'Deployment' }).first().waitFor();
  // In sync is told before the operation has ended, and until then nobody can roll back.
  await page.getByRole('tabpanel', { name: 'Last operation' }).getByText('Succeeded').first().waitFor();
  await look(page, 'operation');
});

test('UX-OP-7 a rollback pauses the application, says so everywhere, and can be resumed', async ({ page }) => {
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
  await row(page, app).getByText('Paused', { exact: true }).waitFor();
  await row(page, app).getByText('Drifted').waitFor();
  await look(page, 'list-paused');
  await row(page, app).getByRole('link', { name: app, exact: true }).click();
  await page.getByRole('button', { name: 'Resume auto-sync' }).click();
  await fact(page, 'Drift').getByText('In sync').waitFor();
  await page.getByRole('button', { name: 'Resume auto-sync' }).waitFor({ state: 'detached' });
});

test('UI-08 the diff of a manual application shows the field', async ({ page }) => {
  await open(page, manual);
  const wanted = await act('drift');
  await fact(page, 'Drift').getByText('Drifted').waitFor();
  await openTab(page, 'Diff');
  await page.getByText(wanted).first().waitFor();
  await look(page, 'diff');
});

test('UI-09 the sync dialog brings it in sync, with the keyboard alone', async ({ page }) => {
  await page.getByRole('button', { name: 'Sync', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByRole('textbox', { name: 'Reason' }).fill('by hand');
  await look(page, 'sync');
  await page.getByRole('button', { name: 'Start sync' }).focus();
  await page.keyboard.press('Enter');
  await fact(page, 'Drift').getByText('In sync').waitFor();
  await openTab(page, 'Diff');
  await page.getByText('No differences').waitFor();
  await look(page, 'diff-none');
});
