import { Alert, Button, Stack, Text } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useDenied } from '../../../api/session';
import { ago } from '../../../format/format';
import { count, t } from '../../../texts';
import { Confirm } from '../../../ui/page';
import { type ApplicationSet, setMutations } from './api';
import type { SetKey } from './keys';
import { projectOfSet } from './model';
import type { SetSearch } from './search';

/** So many names stand in the banner; the dialog has all. */
const named = 8;

interface Props {
  set: ApplicationSet;
  setKey: SetKey;
  ask: boolean;
  go: (change: SetSearch) => void;
}

/** Says that applications are only deleted with consent, and takes it. */
export function Held({ set, setKey, ask, go }: Props) {
  const project = projectOfSet(set);
  const noUpdate = useDenied('applicationsets', 'update', project);
  const noDelete = useDenied('applications', 'delete', project);
  const approve = useMutation(setMutations.approve(setKey));
  const held = set.status?.capstan?.held;
  if (!held || held.count === 0) return null;
  const names = held.applications.map((name) => name.replace(/^argocd\//, ''));
  return (
    <Alert
      color="yellow"
      role="alert"
      title={t('{{count}} of {{of}} applications would be deleted, and wait for consent', {
        count: held.count,
        of: held.of,
      })}
    >
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          {held.count > held.limit
            ? t('The generators no longer have them. Without consent at most {{limit}} are deleted at once.', {
                limit: held.limit,
              })
            : t('The generators have none of them any more. All applications of a set only go with consent.')}
        </Text>
        <Text size="sm" className="breakable">
          {names.slice(0, named).join(', ')}
          {names.length > named && ` ${t('and {{n}} more', { n: names.length - named })}`}
        </Text>
        {held.consentedBy ? (
          <Text size="sm">
            {t('{{user}} has consented {{time}}; they are being deleted.', {
              user: held.consentedBy,
              time: ago(held.consentedAt, Date.now()),
            })}
          </Text>
        ) : (
          <Button size="xs" variant="outline" color="red" onClick={() => go({ ask: 'approve' })}>
            {t('Delete them …')}
          </Button>
        )}
      </Stack>
      {ask && !held.consentedBy && (
        <Confirm
          title={t('Delete {{n}} applications of {{name}}?', { n: held.count, name: set.metadata.name })}
          action={count(held.count, 'Delete {{n}} application', 'Delete {{n}} applications')}
          typed={set.metadata.name}
          effects={[
            t('Their objects in the clusters go with them, unless the set preserves them.'),
            t('The consent is for exactly these applications.'),
          ]}
          denied={noUpdate || noDelete}
          error={approve.error}
          pending={approve.isPending}
          run={() => approve.mutate(held.digest, { onSuccess: () => go({ ask: undefined }) })}
          close={() => go({ ask: undefined })}
        >
          <ul className="set-names set-scroll" aria-label={t('Applications that are deleted')}>
            {names.map((name) => (
              <li key={name}>{name}</li>
            ))}
            {held.count > names.length && (
              <li className="quiet">{t('and {{n}} more', { n: held.count - names.length })}</li>
            )}
          </ul>
        </Confirm>
      )}
    </Alert>
  );
}
