import { Badge, Group, Modal, PasswordInput, Stack, Table, Text, Textarea, TextInput, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Nothing, Problem, Screen } from '../../ui/states';
import { repositoryMutations, repositoryQueries } from './api';

const colors = { Successful: 'teal', Failed: 'red', Unknown: 'gray' } as const;

/** The repositories and how their last fetch went. */
export function RepositoryList() {
  const denied = useDenied('repositories', 'create');
  const [open, setOpen] = useState(false);
  const repositories = useQuery(repositoryQueries.list());
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Repositories</Title>
        <ActionButton why={denied} onClick={() => setOpen(true)}>
          Add a repository
        </ActionButton>
      </Group>
      <Screen
        query={repositories}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title="No repository is known yet.">One appears with the first application that uses it.</Nothing>
          ) : undefined
        }
      >
        {(d) => (
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>URL</Table.Th>
                <Table.Th>Connection</Table.Th>
                <Table.Th>Fetched</Table.Th>
                <Table.Th>Credential</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((r) => (
                <Table.Tr key={r.id}>
                  <Table.Td>
                    {r.url}
                    {r.project && <Text size="xs">for project {r.project} alone</Text>}
                  </Table.Td>
                  <Table.Td>
                    <Badge variant="light" color={colors[r.connection.status]}>
                      {r.connection.status}
                    </Badge>
                    {r.connection.message && <Text size="xs">{r.connection.message}</Text>}
                  </Table.Td>
                  <Table.Td title={exact(r.connection.fetchedAt)}>{ago(r.connection.fetchedAt, Date.now())}</Table.Td>
                  <Table.Td>
                    {r.hasCredential ? (r.username ?? 'stored') : r.registered ? 'none' : 'none, not registered'}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Screen>
      {open && <AddDialog denied={denied} close={() => setOpen(false)} />}
    </Stack>
  );
}

/** Says whether an address is fetched over SSH: ssh://… or the short form user@host:path. */
const overSSH = (url: string) => /^\s*(ssh|git\+ssh|ssh\+git):\/\//i.test(url) || /^\s*[^/:\s]+:(?!\/\/)/.test(url);

function AddDialog({ denied, close }: { denied: string; close: () => void }) {
  const [form, setForm] = useState({ url: '', username: '', password: '', sshPrivateKey: '' });
  const ssh = overSSH(form.url);
  const add = useMutation(repositoryMutations.add());
  const submit = () => {
    const credential = ssh
      ? { ...(form.sshPrivateKey ? { sshPrivateKey: form.sshPrivateKey } : {}) }
      : {
          ...(form.username ? { username: form.username } : {}),
          ...(form.password ? { password: form.password } : {}),
        };
    add.mutate({ url: form.url, ...credential }, { onSuccess: close });
  };
  const field = (name: keyof typeof form) => ({
    value: form[name],
    onChange: (e: { currentTarget: { value: string } }) => {
      const { value } = e.currentTarget;
      setForm((f) => ({ ...f, [name]: value }));
    },
  });
  return (
    <Modal opened onClose={close} title="Add a repository">
      <Stack>
        {add.error && <Problem error={add.error} />}
        <TextInput label="URL" placeholder="https://git.example.com/team/manifests.git" required {...field('url')} />
        {ssh ? (
          <Textarea
            label="SSH private key"
            description="Without a passphrase. The hub encrypts it and never shows it again."
            placeholder="-----BEGIN OPENSSH PRIVATE KEY-----"
            autoComplete="off"
            spellCheck={false}
            autosize
            minRows={4}
            maxRows={10}
            {...field('sshPrivateKey')}
          />
        ) : (
          <>
            <TextInput label="User name" autoComplete="off" {...field('username')} />
            <PasswordInput label="Password or token" autoComplete="new-password" {...field('password')} />
          </>
        )}
        <Group justify="flex-end">
          <ActionButton why={denied} disabled={!form.url} loading={add.isPending} onClick={submit}>
            Add
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
