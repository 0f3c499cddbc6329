// Applications are made by browsing a repository, edited as form and YAML, and
// rolled back from their history.
import { existsSync } from 'node:fs';
import type { Locator, Page } from '@playwright/test';
import { allow, expect, heading, look, looks, place, session, test } from './console';
import { act, product } from './product';

const figure = (name: string, value: string) => console.log(`figure: ${name}: ${value}`);
const field = (where: Page | Locator, name: string) =>
  where.getByRole('textbox', { name, exact: true }).or(where.getByRole('combobox', { name, exact: true }));
const yaml = (page: Page) => page.getByRole('textbox', { name: 'YAML of the application' });
const settings = (name = 'made') => `${product.url}/applications/argocd/${name}?tab=settings`;

/** The text of the YAML, of which the editor shows all lines. */
const written = async (page: Page) => (await yaml(page).locator('.cm-line').allInnerTexts()).join('\n');

async function replaceYaml(page: Page, change: (text: string) => string) {
  const text = change(await written(page));
  await yaml(page).focus();
  await page.keyboard.press('Control+a');
  // Chromium styles what replaces a selection, which the content security policy refuses.
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(text);
}

interface Stored {
  Metadata: { Labels: Record<string, string> | null; Annotations: Record<string, string> | null };
  Spec: {
    source?: { path?: string; helm?: { valueFiles?: string[]; parameters?: { name: string; value: string }[] } };
    destination: { namespace?: string };
    syncPolicy?: { automated?: { prune?: boolean }; syncOptions?: string[] };
    info?: { name: string; value: string }[];
  };
}
const stored = async (): Promise<Stored> => JSON.parse(await act('spec'));

test('UI-18 the account of this spec', async ({ page }) => {
  test.skip(existsSync(session()), 'the sign-in is there');
  await page.goto(product.setupLink);
  await page.getByRole('textbox', { name: 'User name' }).fill(product.user);
  await page.getByLabel('Password', { exact: false }).first().fill(product.password);
  await page.getByRole('button', { name: 'Create account' }).click();
  await heading(page, 'Overview');
  await page.context().storageState({ path: session() });
});

test('UI-04 J4 an application is made by browsing a repository, with a preview of its objects', async ({ page }) => {
  const repository = await act('repository');
  await place(page, 'Applications');
  let clicks = 1;
  const begun = Date.now();
  const click = async (...found: Parameters<Page['getByRole']>) => {
    clicks++;
    await page.getByRole(...found).click();
  };
  await click('link', { name: 'New application' });
  await heading(page, 'New application');
  await field(page, 'Name').fill('made');
  await field(page, 'Repository').fill(repository);
  await page.getByText('The hub does not know this repository yet.').waitFor();
  await click('button', { name: 'Connect' });
  await page.getByText(/^Reached/).waitFor();
  await field(page, 'Revision').fill('main');
  await page.getByText(/^Now [0-9a-f]{8}/).waitFor();
  await click('button', { name: 'charts/web Helm' });
  const values = page.getByRole('region', { name: 'Values of the chart' });
  await field(values, 'replicas').fill('7');
  await field(page, 'Value files').fill('values-prod.yaml');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await field(page, 'Cluster').fill('in-cluster');
  await field(page, 'Namespace in the cluster').fill('made');
  await click('button', { name: 'Preview' });
  const preview = page.getByRole('region', { name: 'Preview' });
  await preview.getByText('1 object', { exact: true }).waitFor();
  await preview.getByText('all of these would be created').waitFor();
  await look(page, 'create');
  await preview.getByRole('button', { name: /made-config/ }).click();
  await preview.getByText('replicas: "7"').waitFor();
  await preview.getByText('mode: prod').waitFor();
  await click('button', { name: 'Create', exact: true });
  await heading(page, 'made');
  await act('settled');
  figure('J4', `${clicks} clicks, ${((Date.now() - begun) / 1000).toFixed(1)} s (budget 12 clicks, 5 min)`);
  expect(clicks).toBeLessThanOrEqual(12);
  const { Spec } = await stored();
  expect(Spec.source?.helm).toEqual({
    parameters: [{ name: 'replicas', value: '7' }],
    valueFiles: ['values-prod.yaml'],
  });
  expect(Spec.syncPolicy?.syncOptions).toEqual(['CreateNamespace=true']);
});

test('UI-04 form and YAML are one text, and problems stand at their fields', async ({ page }) => {
  const repository = await act('repository');
  await page.goto(
    `${product.url}/applications/new?${new URLSearchParams({ repo: repository, cluster: 'in-cluster' })}`,
  );
  await heading(page, 'New application');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByText('Give it a name.').first().waitFor();
  await look(page, 'create-problems');
  await replaceYaml(page, (t) => t.replace('name: ""', 'name: unsaved').replace('path: ""', 'path: overlays/prod'));
  await expect(field(page, 'Name')).toHaveValue('unsaved');
  await expect(field(page, 'Path')).toHaveValue('overlays/prod');
  await field(page, 'Name prefix').fill('pre-');
  await expect.poll(() => written(page)).toContain('namePrefix: pre-');
  await replaceYaml(page, (t) => t.replace('project: default', 'project: [default'));
  await page.getByText('The form goes on when that is mended.').waitFor();
  await replaceYaml(page, (t) => t.replace('project: [default', 'project: default'));
  await page.getByRole('button', { name: 'Preview' }).click();
  const preview = page.getByRole('region', { name: 'Preview' });
  await preview.getByText('pre-overlay').waitFor();
  expect(await act('gone')).toBe('yes');
});

test('UI-04 the limits of the project stand where they refuse', async ({ page }) => {
  await field(page, 'Project').fill('fenced');
  await page.getByText('The project permits only: https://git.example.com/fenced/*.').waitFor();
  await page.getByText('The project permits only: fenced-* on in-cluster.').waitFor();
  allow('status of 400');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('alert').getByText('does not permit').first().waitFor();
  await look(page, 'create-refused');
  await field(page, 'Project').fill('default');
});

test('UI-04 several sources are written in the form', async ({ page }) => {
  await page.getByRole('button', { name: 'Add a source' }).click();
  const first = page.getByRole('region', { name: 'Source 1' });
  const second = page.getByRole('region', { name: 'Source 2' });
  await field(second, 'Repository').fill(await act('repository'));
  await field(second, 'Ref').fill('shared');
  await field(first, 'Path').fill('charts/web');
  await replaceYaml(page, (t) => t.replace(/ {6}kustomize:\n.*\n/, '').replace(/ {6}path: ""\n/, ''));
  await field(first, 'Value files').fill('$shared/values/shared.yaml');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Preview' }).click();
  const preview = page.getByRole('region', { name: 'Preview' });
  await preview.getByRole('button', { name: /unsaved-config/ }).click();
  await preview.getByText('mode: shared').waitFor();
  await second.getByRole('button', { name: 'Remove source 2' }).click();
  await expect.poll(() => written(page)).not.toContain('sources:');
});

test('UI-12 a page with unsaved changes asks before it is left', async ({ page }) => {
  await place(page, 'Clusters');
  const ask = page.getByRole('dialog', { name: 'Leave without saving?' });
  await look(page, 'create-leave');
  await ask.getByRole('button', { name: 'Stay' }).click();
  await expect(field(page, 'Name')).toHaveValue('unsaved');
  await place(page, 'Clusters');
  await ask.getByRole('button', { name: 'Leave' }).click();
  await heading(page, 'Clusters');
  expect(await act('gone')).toBe('yes');
});

test('UI-12 destination, source, parameters, policy, info, labels, annotations and links are edited', async ({
  page,
}) => {
  await page.goto(settings());
  const save = page.getByRole('button', { name: 'Save', exact: true });
  await page
    .getByRole('region', { name: 'Values of the chart' })
    .getByRole('textbox', { name: 'replicas', exact: true })
    .fill('9');
  await page.getByText('Automatic: each revision').click();
  await page.getByRole('switch', { name: /^Prune(?! last)/ }).check();
  await field(page, 'Labels').fill('team=shop');
  await field(page, 'Annotations').fill('example.com/note=kept');
  await field(page, 'Links').fill('Board=https://board.example.com/made');
  await field(page, 'Info').fill('owner=the shop');
  await page.getByRole('button', { name: 'Preview' }).click();
  const preview = page.getByRole('region', { name: 'Preview' });
  await preview.getByText('1 object, 0 created, 1 changed, 0 deleted').waitFor();
  await preview.getByRole('button', { name: /change made-config/ }).click();
  await preview.getByTestId('diff').locator('ins').first().waitFor();
  await look(page, 'edit');
  await save.click();
  await page.getByText('Saved.').waitFor();
  const { Metadata, Spec } = await stored();
  expect(Metadata.Labels).toEqual({ team: 'shop' });
  expect(Metadata.Annotations).toEqual({
    'example.com/note': 'kept',
    'link.argocd.argoproj.io/Board': 'https://board.example.com/made',
  });
  expect(Spec.info).toEqual([{ name: 'owner', value: 'the shop' }]);
  expect(Spec.syncPolicy?.automated).toEqual({ prune: true });
  expect(Spec.source?.helm?.parameters).toEqual([{ name: 'replicas', value: '9' }]);
  await act('settled');
});

test('UI-12 a change that somebody else made meanwhile is told, and merged by a person', async ({ page }) => {
  await page.goto(settings());
  await field(page, 'Namespace in the cluster').fill('mine');
  await field(page, 'Info').fill('owner=me');
  await act('somebody');
  const told = page.getByRole('alert').filter({ hasText: 'Somebody else has changed it since you began' });
  await told.waitFor();
  allow('status of 409', 'status of 412');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await told.getByRole('button', { name: 'Compare and merge' }).click();
  const merge = page.getByRole('dialog', { name: 'Merge two changes' });
  await merge.getByRole('region', { name: 'Changed by both' }).getByText('spec.destination.namespace').waitFor();
  await look(page, 'edit-merge');
  allow();
  await merge.getByText('Yours', { exact: true }).last().click();
  await merge.getByRole('button', { name: 'Merge', exact: true }).click();
  await expect.poll(() => written(page)).toContain('team: theirs');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Saved.').waitFor();
  const { Metadata, Spec } = await stored();
  expect(Metadata.Labels).toEqual({ team: 'theirs' });
  expect(Spec.destination.namespace).toBe('mine');
  expect(Spec.info).toEqual([{ name: 'owner', value: 'me' }]);
});

test('UI-12 the badge and the links of an application are shown where it is edited', async ({ page }) => {
  await page.getByRole('region', { name: 'Badge' }).getByText('statusbadge.enabled').waitFor();
  await page.getByRole('region', { name: 'Deep links' }).getByText('application.links').waitFor();
});

test('UI-04 UI-12 both pages are used on a phone, and by keyboard alone', async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(settings());
  await field(page, 'Project').waitFor();
  await look(page, 'edit-390');
  expect(await page.evaluate('document.documentElement.scrollWidth <= 390')).toBe(true);
  await page.getByText('YAML', { exact: true }).click();
  await yaml(page).waitFor();
  await expect(page).toHaveURL(/show=yaml/);
  await page.goto(`${product.url}/applications/new`);
  await field(page, 'Name').waitFor();
  await look(page, 'create-390');
  await page.setViewportSize({ width: 1280, height: 800 });
  await field(page, 'Name').focus();
  for (const [label, value] of [
    ['Name', 'typed'],
    ['Namespace of the application', 'argocd'],
    ['Project', 'default'],
    ['Repository', await act('repository')],
  ] as const) {
    await expect(field(page, label)).toBeFocused();
    await page.keyboard.press('Control+a');
    await page.keyboard.insertText(value);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Tab');
  }
  await page.getByText(/^Reached/).waitFor();
  await expect.poll(() => written(page)).toContain('name: typed');
  // Tab leaves the text of the YAML.
  await yaml(page).focus();
  await page.keyboard.press('Tab');
  await expect(yaml(page)).not.toBeFocused();
});

test('UI-11 the history has revision, author, message, reason, parameters, person and duration of each deployment', async ({
  page,
}) => {
  await act('past');
  await page.goto(`${product.url}/applications/argocd/past?tab=history`);
  const table = page.getByRole('table', { name: 'History' });
  const newest = table.getByRole('row').nth(1);
  await newest.getByText('Change the past').waitFor();
  await newest.getByText('Deployed now').waitFor();
  await newest.getByText('the second time').waitFor();
  const text = await newest.innerText();
  expect(text).toMatch(/\d+ s/);
  expect(text).toMatch(/[0-9a-f]{8}/);
  expect(text).toContain('@');
  await newest.getByText('Parameters').click();
  await newest.getByText('targetRevision: main').waitFor();
  await look(page, 'history-panel');
});

test('UI-11 a rollback shows its plan with the fields that change, and says what becomes of automation', async ({
  page,
}) => {
  await page.getByRole('button', { name: 'Roll back to this' }).first().click();
  const dialog = page.getByRole('dialog', { name: /^Roll back to/ });
  const plan = dialog.getByRole('region', { name: 'What changes' });
  await plan.getByText('2 objects change').waitFor();
  await plan.getByText('ConfigMap more: deleted').waitFor();
  await plan.getByRole('button', { name: 'ConfigMap settings: changed' }).click();
  await plan.locator('ins').getByText('first').waitFor();
  await dialog.getByText('The application is then paused', { exact: false }).waitFor();
  await look(page, 'rollback-plan');
  await dialog.getByRole('textbox', { name: 'Reason' }).fill('the second was wrong');
  await dialog.getByRole('button', { name: 'Roll back', exact: true }).click();
  await page
    .getByRole('table', { name: 'History' })
    .getByRole('row')
    .nth(1)
    .getByText('the second was wrong')
    .waitFor();
  await page.getByText(/^Paused at/).waitFor();
});

test('UX-A11-1 no state of these pages has a serious barrier', () => {
  const all = looks();
  expect(all.flatMap((l) => l.barriers)).toEqual([]);
  expect(all.length).toBeGreaterThan(0);
});
