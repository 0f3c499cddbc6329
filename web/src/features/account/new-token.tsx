import { Button, CopyButton, Group, Modal, NativeSelect, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { exact } from '../../format/format';
import { Problem } from '../../ui/states';
import { accountMutations } from './api';

const lifetimes = [
  { value: '7d', label: '7 days' },
  { value: '30d', label: '30 days' },
  { value: '90d', label: '90 days' },
  { value: '366d', label: '366 days, the longest' },
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
    <Modal opened onClose={close} title="New API token" size="lg" closeOnClickOutside={!made}>
      {made ? (
        <Stack>
          <Text size="sm">
            Copy the token now: it is shown this once, and nobody can read it later. It works until{' '}
            {exact(made.info.expiresAt)}.
          </Text>
          <output className="new-token" aria-label="Token">
            {made.token}
          </output>
          <Group justify="flex-end">
            <CopyButton value={made.token}>
              {({ copied, copy }) => (
                <Button variant="default" onClick={copy}>
                  {copied ? 'Copied' : 'Copy'}
                </Button>
              )}
            </CopyButton>
            <Button onClick={close}>Done</Button>
          </Group>
        </Stack>
      ) : (
        <form onSubmit={submit}>
          <Stack>
            {create.error && <Problem error={create.error} />}
            <TextInput
              label="Name"
              description="What it is for, such as ci or backup"
              required
              data-autofocus
              autoComplete="off"
              value={name}
              onChange={(e) => setName(e.currentTarget.value)}
            />
            <NativeSelect
              label="Expires after"
              data={lifetimes}
              value={expiresIn}
              onChange={(e) => setExpiresIn(e.currentTarget.value)}
            />
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                Cancel
              </Button>
              <Button type="submit" loading={create.isPending}>
                Create
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
