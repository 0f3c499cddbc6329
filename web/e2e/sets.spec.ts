// ApplicationSets in the console: one is made, changed and deleted there.
import type { Page } from '@playwright/test';
import { allow, expect, fact, heading, look, openTab, place, row, test } from './console';
import { product } from './product';

const { url, manual } = product;

/** A set that makes an application for each name. Its repository is one that cannot be reached. */
const text = (...names: string[]) => `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: console-set, namespace: argocd, labels: {team: console}}
spec:
  goTemplate: true
  generators: [{list: {elements: [${names.map((n) => `{name: ${n}}`).join(', ')}]}}]
  template:
    metadata: {name: 'console-set-{{.name}}'}
    spec:
      project: default
      source: {repoURL: 'https://git.example.com/absent.git', path: '{{.name}}', targetRevision: main}
      destination: {name: in-cluster, namespace: 'console-set-{{.name}}'}
`;

async function write(page: Page, yaml: string) {
  await page.getByRole('textbox', { name: 'ApplicationSet as YAML' }).focus();
  await page.keyboard.press('Control+a');
  // Chromium styles what replaces a selection, which the content security policy refuses.
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(yaml);
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const preview = (page: Page) => page.getByRole('region', { name: 'Preview' });

test('UX-PRO-4 ASET-23 a set is made after a preview that equals what comes of it', async ({ page }) => {
  await place(page, 'ApplicationSets');
  await heading(page, 'ApplicationSets');
  await button(page, 'New ApplicationSet').click();
  await heading(page, 'New ApplicationSet');
  await expect(button(page, 'Create')).toHaveAttribute('aria-disabled', 'true');
  await write(page, text('a', 'b'));
  await button(page, 'Preview').click();
  await preview(page).getByText('2 created, 0 changed, 0 deleted').waitFor();
  await preview(page)
    .getByRole('button', { name: /console-set-a/ })
    .click();
  await preview(page).getByText('namespace: console-set-a', { exact: false }).first().waitFor();
  await preview(page).getByText('Parameters', { exact: true }).click();
  await preview(page).getByText('name: a', { exact: true }).waitFor();
  await look(page, 'set-preview');
  await button(page, 'Create').click();
  await heading(page, 'console-set');
  const made = page.getByRole('list', { name: 'Applications of console-set' });
  await expect(made.getByRole('link')).toHaveText(['console-set-a', 'console-set-b']);
  await fact(page, 'Generators').getByText('list').waitFor();
  await page.getByRole('table', { name: 'Conditions' }).getByText('ResourcesUpToDate').waitFor();
  await look(page, 'set');
});

test('ASET-23 an application leads to its set, and lists of applications and sets know of each other', async ({
  page,
}) => {
  await page.getByRole('link', { name: 'console-set-a' }).click();
  await heading(page, 'console-set-a');
  await page.getByRole('link', { name: 'console-set', exact: true }).click();
  await heading(page, 'console-set');
  await page.goto(`${url}/applications?q=set:console-set`);
  await row(page, 'console-set-b').waitFor();
  await expect(row(page, manual)).toHaveCount(0);
  await place(page, 'ApplicationSets');
  await row(page, 'console-set').getByText('team=console').waitFor();
  await look(page, 'sets');
  await page.getByText('Tiles', { exact: true }).click();
  await page.getByRole('list', { name: 'ApplicationSets' }).getByText('2 applications').waitFor();
  await look(page, 'sets-tiles');
  await page.getByRole('link', { name: 'console-set', exact: true }).click();
  await openTab(page, 'Parameters');
  await page.getByRole('table', { name: 'Parameters' }).getByText('console-set-b').waitFor();
  await openTab(page, 'Events');
  await page.getByRole('table', { name: 'Events' }).getByText('create').first().waitFor();
});

test('UX-PRO-4 ASET-23 a change that deletes asks before it is saved, and a mass deletion waits for consent', async ({
  page,
}) => {
  await openTab(page, 'Edit and preview');
  await write(page, text('a', 'c'));
  await expect(button(page, 'Save')).toHaveAttribute('aria-disabled', 'true');
  await button(page, 'Preview').click();
  await preview(page).getByText('1 created, 0 changed, 1 deleted').waitFor();
  await button(page, 'Save').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('console-set-b').waitFor();
  await look(page, 'set-save');
  await dialog.getByRole('button', { name: 'Save and delete' }).click();
  await page.getByText('Saved.').waitFor();
  await openTab(page, 'Applications');
  const made = page.getByRole('list', { name: 'Applications of console-set' });
  await expect(made.getByRole('link')).toHaveText(['console-set-a', 'console-set-c']);
  await openTab(page, 'Edit and preview');
  await write(page, text());
  await button(page, 'Preview').click();
  await preview(page).getByText('2 applications would not be deleted before somebody consents.').waitFor();
  await button(page, 'Save').click();
  await dialog.getByRole('textbox').fill('console-set');
  await dialog.getByRole('button', { name: 'Save and delete' }).click();
  await page.getByText('2 of 2 applications would be deleted, and wait for consent').waitFor();
  await look(page, 'set-held');
  await openTab(page, 'Applications');
  await expect(made.getByRole('link')).toHaveText(['console-set-a', 'console-set-c']);
  await button(page, 'Delete them …').click();
  await dialog.getByRole('textbox').fill('console-set');
  await look(page, 'set-consent');
  await dialog.getByRole('button', { name: 'Delete 2 applications' }).click();
  await page.getByText('It has made no application that you may see.').waitFor();
});

test('ASET-23 a set is deleted after its name is typed', async ({ page }) => {
  const wide = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 844 });
  await look(page, 'set-narrow');
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
  if (wide) await page.setViewportSize(wide);
  await button(page, 'Delete').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('radio', { name: 'Leave them' }).check();
  await dialog.getByRole('radio', { name: 'Delete them with it' }).check();
  await dialog.getByRole('textbox').fill('console-set');
  await look(page, 'set-remove');
  allow('status of 404'); // the stream may say that it is gone before its page is left
  await dialog.getByRole('button', { name: 'Delete the ApplicationSet' }).click();
  await heading(page, 'ApplicationSets');
  await page.getByText('There is no ApplicationSet yet.').waitFor();
  allow();
});
