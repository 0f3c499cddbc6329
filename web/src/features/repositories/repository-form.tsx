import {
  Alert,
  Button,
  Group,
  Modal,
  NativeSelect,
  PasswordInput,
  Stack,
  Switch,
  Textarea,
  TextInput,
} from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import type { Repository } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { Problem } from '../../ui/states';
import { repositoryMutations } from './api';
import { type Field, type Form, inputOf, kindsFor } from './model';

type Set = (key: keyof Form, value: string | boolean) => void;

/** Registers a repository of any type with any kind of credential, or changes one. */
export function RepositoryDialog({ repository, close }: { repository: Repository | undefined; close: () => void }) {
  const denied = useDenied('repositories', 'create');
  const [form, setForm] = useState<Form>(repository ? formOf(repository) : { url: '', type: 'git' });
  const [chosen, setChosen] = useState('');
  const put = useMutation(repositoryMutations.put());
  const validate = useMutation(repositoryMutations.validate());
  const set: Set = (key, value) => {
    validate.reset();
    setForm((f) => ({ ...f, [key]: value }));
  };
  const url = String(form.url ?? '');
  const offered = kindsFor(url, String(form.type));
  const kind =
    offered.find((k) => k.key === chosen) ?? offered.find((k) => k.key === (repository ? 'none' : preferred(url)));
  const input = inputOf(form, kind);
  return (
    <Modal opened onClose={close} title={repository ? t('Edit the repository') : t('Add a repository')} size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!denied) put.mutate(input, { onSuccess: close });
        }}
      >
        <Stack>
          {(put.error ?? validate.error) && <Problem error={put.error ?? validate.error} />}
          <TextInput
            label={t('URL')}
            placeholder="https://git.example.com/team/manifests.git"
            required
            readOnly={repository !== undefined}
            data-autofocus
            value={url}
            onChange={(e) => set('url', e.currentTarget.value)}
          />
          <Group grow align="flex-start">
            <NativeSelect
              label={t('Type')}
              value={String(form.type)}
              data={[
                { value: 'git', label: t('Git') },
                { value: 'helm', label: t('Charts') },
                { value: 'oci', label: t('OCI registry') },
              ]}
              onChange={(e) => set('type', e.currentTarget.value)}
            />
            <TextInput
              label={t('Project')}
              description={t('Only its applications use it; empty: all')}
              readOnly={repository !== undefined}
              value={String(form.project ?? '')}
              onChange={(e) => set('project', e.currentTarget.value)}
            />
          </Group>
          <NativeSelect
            label={t('Credential')}
            description={repository?.hasCredential ? t('What is stored stays unless another one is given.') : undefined}
            value={kind?.key ?? 'none'}
            data={offered.map((k) => ({
              value: k.key,
              label: k.key === 'none' && repository?.hasCredential ? t('As it is stored') : k.label,
            }))}
            onChange={(e) => setChosen(e.currentTarget.value)}
          />
          {kind?.fields.map((f) => (
            <Input key={f.key} field={f} form={form} set={set} />
          ))}
          <More form={form} set={set} />
          {validate.data && (
            <Alert
              role="status"
              color={validate.data.connection.status === 'Failed' ? 'red' : 'teal'}
              title={
                validate.data.connection.status === 'Successful'
                  ? t('It can be reached.')
                  : validate.data.connection.status === 'Failed'
                    ? t('It cannot be reached.')
                    : t('This type is not tested before it is stored.')
              }
            >
              {sentence(validate.data.connection.message ?? '')}
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton
              why={denied}
              variant="default"
              disabled={!url}
              loading={validate.isPending}
              onClick={() => validate.mutate(input)}
            >
              {t('Test')}
            </ActionButton>
            <ActionButton type="submit" why={denied} disabled={!url} loading={put.isPending}>
              {repository ? t('Save') : t('Add')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

const preferred = (url: string) => (/^\s*(ssh:|git\+ssh:|[^/:\s]+:(?!\/\/))/i.test(url) ? 'ssh' : 'password');

const formOf = (r: Repository): Form => ({
  url: r.url,
  type: r.type,
  name: r.name ?? '',
  project: r.project ?? '',
  username: r.username ?? '',
  insecure: r.insecure ?? false,
  enableOCI: r.enableOCI ?? false,
  insecureOCIForceHttp: r.insecureOCIForceHttp ?? false,
  proxy: r.proxy ?? '',
  noProxy: r.noProxy ?? '',
  enableLfs: r.enableLfs ?? false,
  depth: r.depth ? String(r.depth) : '',
});

/** One field of a form. */
export function Input({ field, form, set }: { field: Field; form: Form; set: Set }) {
  const { key, label, kind, about } = field;
  const value = String(form[key] ?? '');
  const common = { label, description: about, value };
  switch (kind) {
    case 'secret':
      return (
        <PasswordInput {...common} autoComplete="new-password" onChange={(e) => set(key, e.currentTarget.value)} />
      );
    case 'block':
      return (
        <Textarea
          {...common}
          autoComplete="off"
          spellCheck={false}
          rows={5}
          onChange={(e) => set(key, e.currentTarget.value)}
        />
      );
    case 'switch':
      return (
        <Switch
          label={label}
          description={about}
          checked={form[key] === true}
          onChange={(e) => set(key, e.currentTarget.checked)}
        />
      );
    default:
      return (
        <TextInput
          {...common}
          autoComplete="off"
          inputMode={kind === 'number' ? 'numeric' : 'text'}
          onChange={(e) => set(key, e.currentTarget.value)}
        />
      );
  }
}

const always: readonly Field[] = [
  { key: 'name', label: t('Name'), kind: 'text', about: t('For people.') },
  {
    key: 'insecure',
    label: t('Do not verify the server'),
    kind: 'switch',
    about: t('Neither its certificate nor its host key.'),
  },
  { key: 'proxy', label: t('Proxy'), kind: 'text', about: t('One that the operator of the hub permits.') },
  { key: 'noProxy', label: t('Without the proxy'), kind: 'text', about: t('Hosts and networks, separated by commas.') },
];
const ofGit: readonly Field[] = [
  { key: 'enableLfs', label: t('Fetch the contents of files in Git LFS'), kind: 'switch' },
  { key: 'depth', label: t('Commits of each branch'), kind: 'number', about: t('Empty: all.') },
];
const ofCharts: readonly Field[] = [
  { key: 'enableOCI', label: t('Charts come from an OCI registry'), kind: 'switch' },
  { key: 'insecureOCIForceHttp', label: t('Contact the registry without TLS'), kind: 'switch' },
];

function More({ form, set }: { form: Form; set: Set }) {
  const fields = [...always, ...(form.type === 'git' ? ofGit : ofCharts)];
  return (
    <details>
      <summary>{t('More')}</summary>
      <Stack mt="xs">
        {fields.map((f) => (
          <Input key={f.key} field={f} form={form} set={set} />
        ))}
      </Stack>
    </details>
  );
}
