import { expect, heading, look, openTab, place, test } from './console';
import { act, product } from './product';

test('UX-NOT-2 NOTI-17 a template is tried out, and the delivery has the payload, the answer and another try', async ({
  page,
}) => {
  await act('notify');
  await place(page, 'Settings');
  await page.getByRole('link', { name: 'Notifications', exact: true }).click();
  await heading(page, 'Notifications');
  await openTab(page, 'Services');
  await page.getByRole('cell', { name: 'console-hook' }).waitFor();
  await openTab(page, 'Triggers');
  const trigger = page.getByRole('region', { name: 'on-health-recovered' });
  await trigger.getByText('Text', { exact: true }).click();
  await trigger.getByText('previous.degraded').waitFor();
  await look(page, 'notification-triggers');
  await openTab(page, 'Templates');
  await page.getByRole('button', { name: 'Try console-said' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Application' }).fill(`argocd/${product.manual}`);
  await dialog.getByRole('combobox', { name: 'Service' }).selectOption('console-hook');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByText(`about ${product.manual} with ••••••`).waitFor();
  await look(page, 'notification-try');
  await dialog.getByRole('button', { name: 'Send a test message' }).click();
  const drawer = page.getByRole('dialog', { name: 'Delivery' });
  await drawer.getByText('Delivered').waitFor();
  const attempt = drawer.getByRole('region', { name: 'Attempt 1' });
  await attempt.getByText('POST http://127.0.0.1').waitFor();
  await attempt.getByText('Answer 204').waitFor();
  await expect(drawer.getByText('hook-secret')).toHaveCount(0);
  await look(page, 'notification-delivery');
  const first = page.url();
  await drawer.getByRole('button', { name: 'Send it once more' }).click();
  await expect.poll(() => page.url()).not.toBe(first);
  await drawer.getByText('An earlier delivery').waitFor();
  await page.keyboard.press('Escape');
  const rows = page.getByRole('table', { name: 'Deliveries' });
  await expect(rows.getByText('Test message')).toHaveCount(2);
  await page.getByRole('radiogroup', { name: 'State' }).getByText('Failed').click();
  await page.getByText('Nothing was sent.').waitFor();
  await page.getByRole('radiogroup', { name: 'State' }).getByText('Everything').click();
  await expect(rows.getByText('Test message')).toHaveCount(2);
  await look(page, 'notification-deliveries');
});
