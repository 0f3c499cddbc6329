import { notifications } from '@mantine/notifications';
import { afterEach, expect, test, vi } from 'vitest';
import { HubError } from '../api/errors';
import { makeQueryClient } from './queries';

afterEach(() => vi.restoreAllMocks());

const away = new HubError('the store is away', { status: 503, fix: 'try later' });
const unauthorized = new HubError('you are not signed in', { status: 401 });

const fail = (meta?: { inline: boolean }) => {
  const client = makeQueryClient(() => {});
  const mutation = client.getMutationCache().build(client, {
    mutationFn: async () => {
      throw away;
    },
    ...(meta ? { meta } : {}),
  });
  return expect(mutation.execute(undefined)).rejects.toBe(away);
};

test('a mutation that fails is notified once, unless its form shows the error', async () => {
  const show = vi.spyOn(notifications, 'show').mockReturnValue('');
  await fail();
  expect(show).toHaveBeenCalledExactlyOnceWith({ color: 'red', title: 'The store is away.', message: 'Try later.' });
  await fail({ inline: false });
  expect(show).toHaveBeenCalledTimes(2);
  await fail({ inline: true });
  expect(show).toHaveBeenCalledTimes(2);
});

test('only a query that the hub refuses for want of a session reports that nobody is signed in', async () => {
  const onSignedOut = vi.fn();
  const client = makeQueryClient(onSignedOut);
  const read = (error: HubError) =>
    client
      .fetchQuery({ queryKey: [error.message], queryFn: () => Promise.reject(error), retry: false })
      .catch(() => undefined);
  await read(away);
  expect(onSignedOut).not.toHaveBeenCalled();
  await read(unauthorized);
  expect(onSignedOut).toHaveBeenCalledTimes(1);
});
