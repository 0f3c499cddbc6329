import { Radio, Stack } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { count, t } from '../../../texts';
import { Confirm } from '../../../ui/page';
import { text } from '../object/read';
import { type ApplicationSet, setMutations } from './api';
import type { SetKey } from './keys';

interface Props {
  set: ApplicationSet;
  setKey: SetKey;
  denied: string;
  close: () => void;
  gone: () => void;
}

/** Asks before a set is deleted, and what becomes of its applications. */
export function Remove({ set, setKey, denied, close, gone }: Props) {
  const [how, setHow] = useState('with');
  const remove = useMutation(setMutations.remove(setKey));
  const made = set.status?.resourcesCount ?? 0;
  const stays = text(set.spec, 'syncPolicy.preserveResourcesOnDeletion') === 'true';
  const effects =
    how === 'with'
      ? [
          count(made, '{{n}} application is deleted.', '{{n}} applications are deleted.'),
          stays
            ? t('Their objects in the clusters stay: the set preserves them.')
            : t('Their objects in the clusters are deleted, too.'),
        ]
      : [
          count(
            made,
            '{{n}} application stays, and belongs to no set.',
            '{{n}} applications stay, and belong to no set.',
          ),
        ];
  return (
    <Confirm
      title={t('Delete ApplicationSet {{name}}?', { name: setKey.name })}
      action={t('Delete the ApplicationSet')}
      typed={setKey.name}
      effects={effects}
      denied={denied}
      error={remove.error}
      pending={remove.isPending}
      run={() => remove.mutate(how === 'with', { onSuccess: gone })}
      close={close}
    >
      <Radio.Group label={t('What becomes of its applications')} value={how} onChange={setHow}>
        <Stack gap="xs" mt="xs">
          <Radio value="with" label={t('Delete them with it')} />
          <Radio value="without" label={t('Leave them')} />
        </Stack>
      </Radio.Group>
    </Confirm>
  );
}
