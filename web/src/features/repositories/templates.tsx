import { Button, Group, Modal, NativeSelect, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
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
          {t('The template with the longest matching beginning is used for a repository without a credential.')}
        </Text>
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          {t('Add a template')}
        </ActionButton>
      </Group>
      <Screen
        query={templates}
        empty={(d) => (d.items.length === 0 ? <Nothing title={t('There is no credential template.')} /> : undefined)}
      >
        {(d) => (
          <Table aria-label={t('Credential templates')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('URLs that begin with')}</Table.Th>
                <Table.Th>{t('Type')}</Table.Th>
                <Table.Th className="second">{t('User name')}</Table.Th>
                <Table.Th className="second">{t('Since')}</Table.Th>
                <Table.Th aria-label={t('Actions')} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((template) => (
                <Table.Tr key={template.id}>
                  <Table.Td className="breakable">{template.url}</Table.Td>
                  <Table.Td>{template.type}</Table.Td>
                  <Table.Td className="second">{template.username || '–'}</Table.Td>
                  <Table.Td className="second" title={exact(template.createdAt)}>
                    {ago(template.createdAt, Date.now())}
                  </Table.Td>
                  <Table.Td>
                    <ActionButton
                      why={noDelete}
                      size="compact-sm"
                      variant="subtle"
                      color="red"
                      aria-label={t('Remove the template for {{url}}', { url: template.url })}
                      onClick={() => setRemoving(template)}
                    >
                      {t('Remove')}
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
          title={t('Remove the credential template?')}
          action={t('Remove')}
          effects={[
            t('Repositories under {{url}} that have no credential of their own cannot be fetched any more.', {
              url: removing.url,
            }),
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
    <Modal opened onClose={close} title={t('Add a credential template')} size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!denied) put.mutate(templateOf(name, form, kind), { onSuccess: close });
        }}
      >
        <Stack>
          {put.error && <Problem error={put.error} />}
          <TextInput
            label={t('Name')}
            required
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <TextInput
            label={t('URLs that begin with')}
            placeholder="https://git.example.com/team/"
            required
            value={String(form.url)}
            onChange={(e) => set('url', e.currentTarget.value)}
          />
          <NativeSelect
            label={t('Credential')}
            value={kind?.key ?? ''}
            data={offered.map((k) => ({ value: k.key, label: k.label }))}
            onChange={(e) => setChosen(e.currentTarget.value)}
          />
          {kind?.fields.map((f) => (
            <Input key={f.key} field={f} form={form} set={set} />
          ))}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name || !form.url} loading={put.isPending}>
              {t('Add')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
