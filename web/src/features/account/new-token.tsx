import { Button, CopyButton, Group, Modal, NativeSelect, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { exact } from '../../format/format';
import { t } from '../../texts';
import { Problem } from '../../ui/states';
import { accountMutations } from './api';

const lifetimes = [
  { value: '7d', label: t('7 days') },
  { value: '30d', label: t('30 days') },
  { value: '90d', label: t('90 days') },
  { value: '366d', label: t('366 days, the longest') },
];

/** Makes a token and shows its secret this once. */
export function NewToken({ username, close }: { username: string; close: () => void }) {
  const [name, setName] = useState('');
  const [expiresIn, setExpiresIn] = useState('90d');
  const create = useMutation(accountMutations.createToken(username));
  const submit = (e: FormEvent) => {
    e.preventDefault();
    create.mutate({ name: name.trim(), expiresIn });
  };
  const made = create.data;
  return (
    <Modal opened onClose={close} title={t('New API token')} size="lg" closeOnClickOutside={!made}>
      {made ? (
        <Stack>
          <Text size="sm">
            {t('Copy the token now: it is shown this once, and nobody can read it later. It works until {{time}}.', {
              time: exact(made.info.expiresAt),
            })}
          </Text>
          <output className="new-token" aria-label={t('Token')}>
            {made.token}
          </output>
          <Group justify="flex-end">
            <CopyButton value={made.token}>
              {({ copied, copy }) => (
                <Button variant="default" onClick={copy}>
                  {copied ? t('Copied') : t('Copy')}
                </Button>
              )}
            </CopyButton>
            <Button onClick={close}>{t('Done')}</Button>
          </Group>
        </Stack>
      ) : (
        <form onSubmit={submit}>
          <Stack>
            {create.error && <Problem error={create.error} />}
            <TextInput
              label={t('Name')}
              description={t('What it is for, such as ci or backup')}
              required
              data-autofocus
              autoComplete="off"
              value={name}
              onChange={(e) => setName(e.currentTarget.value)}
            />
            <NativeSelect
              label={t('Expires after')}
              data={lifetimes}
              value={expiresIn}
              onChange={(e) => setExpiresIn(e.currentTarget.value)}
            />
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                {t('Cancel')}
              </Button>
              <Button type="submit" loading={create.isPending}>
                {t('Create')}
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
