import type { Locator, Page } from '@playwright/test';
import { allow, expect, heading, look, place, signIn, test } from './console';
import { act, product } from './product';

const { url, manual } = product;

/** Goes to a button with the keyboard alone. */
async function tabTo(page: Page, button: Locator) {
  await expect(async () => {
    await page.keyboard.press('Tab');
    expect(await button.evaluate((e) => e === document.activeElement)).toBe(true);
  }).toPass({ intervals: [0] });
}

/** Checks that a button is off, says which right to ask for when it has the focus, and does nothing. */
async function off(page: Page, name: string, right: string) {
  const button = page.getByRole('button', { name, exact: true }).first();
  await expect(button).toHaveAttribute('aria-disabled', 'true');
  await tabTo(page, button);
  await page.getByRole('tooltip').getByText(`Ask an admin of the tenant for: ${right}.`).waitFor();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toHaveCount(0);
}

test('RBAC-13 a reader finds every button that writes off, and reads which right is missing', async ({ page }) => {
  allow('status of 401'); // to what is asked for until the reader has signed in
  const password = await act('reader');
  await page.context().clearCookies();
  await page.goto(`${url}/applications/argocd/${manual}?tab=history`);
  await heading(page, 'Sign in to Capstan');
  await signIn(page, 'reader', password);
  await heading(page, manual);
  allow();
  await off(page, 'Sync', 'applications, sync, default/*');
  await off(page, 'Roll back to this', 'applications, rollback, default/*');
  await look(page, 'reader-application');
  await expect(page.getByRole('button', { name: 'Refresh' })).toBeEnabled();
  await place(page, 'Clusters');
  await off(page, 'Enrol a cluster', 'clusters, create, *');
  await look(page, 'reader-clusters');
  await place(page, 'Repositories');
  await off(page, 'Add a repository', 'repositories, create, *');
  await expect(page.getByRole('link', { name: 'Settings' })).toHaveCount(0);
});
