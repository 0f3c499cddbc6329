import { mutationOptions, queryOptions } from '@tanstack/react-query';
import { api, body } from '../../api/client';

const key = ['settings'];

export const settingQueries = {
  list: () =>
    queryOptions({
      queryKey: key,
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/settings', { signal })),
    }),
  usage: () =>
    queryOptions({
      queryKey: [...key, 'usage'],
      queryFn: async ({ signal }) => body(await api.GET('/api/v1/usage', { signal })),
    }),
};

interface Change {
  map: string;
  key: string;
  /** The new value; null removes the key. */
  to: string | null;
  /** The version of the settings that the change is based on; 0 if nothing is stored. */
  version: number;
  dryRun: boolean;
}

export const settingMutations = {
  change: () =>
    mutationOptions({
      meta: { inline: true },
      mutationFn: async (change: Change) =>
        body(
          await api.PATCH('/api/v1/settings', {
            // Where nothing is stored yet there is nothing to overwrite.
            params: {
              query: { dryRun: change.dryRun },
              header: change.version > 0 ? { 'If-Match': `"${change.version}"` } : {},
            },
            body: { values: { [change.map]: { [change.key]: change.to } } },
          }),
        ),
      onSuccess: async (_answer, { dryRun }, _result, { client }) => {
        if (!dryRun) await client.invalidateQueries({ queryKey: key });
      },
    }),
};
