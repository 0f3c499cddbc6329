import { Button, Group, Modal, NativeSelect, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Confirm } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { repositoryMutations, repositoryQueries } from './api';
import { type Form, kindsFor, templateOf } from './model';
import { Input } from './repository-form';

/** Credentials for all repositories under a prefix. */
export function Templates() {
  const denied = useDenied('repositories', 'create');
  const noDelete = useDenied('repositories', 'delete');
  const templates = useQuery(repositoryQueries.templates());
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<{ id: string; url: string }>();
  const remove = useMutation(repositoryMutations.removeTemplate());
  return (
    <Stack>
      <Group justify="space-between">
        <Text c="dimmed">
          The template with the longest matching beginning is used for a repository without a credential.
        </Text>
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          Add a template
        </ActionButton>
      </Group>
      <Screen
        query={templates}
        empty={(d) => (d.items.length === 0 ? <Nothing title="There is no credential template." /> : undefined)}
      >
        {(d) => (
          <Table aria-label="Credential templates">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>URLs that begin with</Table.Th>
                <Table.Th>Type</Table.Th>
                <Table.Th className="second">User name</Table.Th>
                <Table.Th className="second">Since</Table.Th>
                <Table.Th aria-label="Actions" />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((t) => (
                <Table.Tr key={t.id}>
                  <Table.Td className="breakable">{t.url}</Table.Td>
                  <Table.Td>{t.type}</Table.Td>
                  <Table.Td className="second">{t.username || '–'}</Table.Td>
                  <Table.Td className="second" title={exact(t.createdAt)}>
                    {ago(t.createdAt, Date.now())}
                  </Table.Td>
                  <Table.Td>
                    <ActionButton
                      why={noDelete}
                      size="compact-sm"
                      variant="subtle"
                      color="red"
                      aria-label={`Remove the template for ${t.url}`}
                      onClick={() => setRemoving(t)}
                    >
                      Remove
                    </ActionButton>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Screen>
      {adding && <Add denied={denied} close={() => setAdding(false)} />}
      {removing && (
        <Confirm
          title="Remove the credential template?"
          action="Remove"
          effects={[
            `Repositories under ${removing.url} that have no credential of their own cannot be fetched any more.`,
          ]}
          denied={noDelete}
          error={remove.error}
          pending={remove.isPending}
          run={() => remove.mutate(removing.id, { onSuccess: () => setRemoving(undefined) })}
          close={() => setRemoving(undefined)}
        />
      )}
    </Stack>
  );
}

function Add({ denied, close }: { denied: string; close: () => void }) {
  const [name, setName] = useState('');
  const [form, setForm] = useState<Form>({ url: '', type: 'git' });
  const [chosen, setChosen] = useState('');
  const put = useMutation(repositoryMutations.putTemplate());
  const offered = kindsFor(String(form.url), String(form.type)).filter((k) => k.key !== 'none');
  const kind = offered.find((k) => k.key === chosen) ?? offered[0];
  const set = (key: keyof Form, value: string | boolean) => setForm((f) => ({ ...f, [key]: value }));
  return (
    <Modal opened onClose={close} title="Add a credential template" size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!denied) put.mutate(templateOf(name, form, kind), { onSuccess: close });
        }}
      >
        <Stack>
          {put.error && <Problem error={put.error} />}
          <TextInput
            label="Name"
            required
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <TextInput
            label="URLs that begin with"
            placeholder="https://git.example.com/team/"
            required
            value={String(form.url)}
            onChange={(e) => set('url', e.currentTarget.value)}
          />
          <NativeSelect
            label="Credential"
            value={kind?.key ?? ''}
            data={offered.map((k) => ({ value: k.key, label: k.label }))}
            onChange={(e) => setChosen(e.currentTarget.value)}
          />
          {kind?.fields.map((f) => (
            <Input key={f.key} field={f} form={form} set={set} />
          ))}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name || !form.url} loading={put.isPending}>
              Add
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
