import { Button, Group, Modal, Stack, Table, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { Page } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type AppProject, projectMutations, projectQueries } from './api';
import { destinationsOf, sourcesOf } from './model';

/** The projects, and what they permit. */
export function ProjectList() {
  const search = useSearch({ from: '/shell/projects' });
  const navigate = useNavigate({ from: '/projects' });
  const denied = useDenied('projects', 'create');
  const projects = useQuery(projectQueries.list());
  const [adding, setAdding] = useState(false);
  const shown = (projects.data?.items ?? []).filter((p) =>
    `${p.metadata.name} ${p.spec.description ?? ''}`.toLowerCase().includes((search.q ?? '').toLowerCase()),
  );
  return (
    <Page
      title={t('Projects')}
      about={t('What applications may use, and where they may go')}
      actions={
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          {t('New project')}
        </ActionButton>
      }
    >
      <TextInput
        aria-label={t('Search projects')}
        placeholder={t('Name or description')}
        leftSection={<IconSearch size={16} aria-hidden />}
        value={search.q ?? ''}
        onChange={(e) => {
          const q = e.currentTarget.value;
          void navigate({ search: q ? { q } : {}, replace: true });
        }}
      />
      <Screen
        query={projects}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title={t('You may see no project.')}>{t('Ask an admin.')}</Nothing>
          ) : undefined
        }
      >
        {() =>
          shown.length === 0 ? <Nothing title={t('No project matches the search.')} /> : <Rows projects={shown} />
        }
      </Screen>
      {adding && <Create denied={denied} close={() => setAdding(false)} />}
    </Page>
  );
}

function Rows({ projects }: { projects: AppProject[] }) {
  return (
    <Table highlightOnHover aria-label={t('Projects')} mt="xs">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Name')}</Table.Th>
          <Table.Th>{t('Sources')}</Table.Th>
          <Table.Th>{t('Destinations')}</Table.Th>
          <Table.Th className="second">{t('Roles')}</Table.Th>
          <Table.Th className="second">{t('Sync windows')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {projects.map((p) => (
          <Table.Tr key={p.metadata.name}>
            <Table.Td>
              <Link to="/projects/$name" params={{ name: p.metadata.name }}>
                {p.metadata.name}
              </Link>
              <div className="note-line">{p.spec.description}</div>
            </Table.Td>
            <Table.Td className="breakable">{sourcesOf(p)}</Table.Td>
            <Table.Td className="breakable">{destinationsOf(p)}</Table.Td>
            <Table.Td className="second">{p.spec.roles?.length ?? 0}</Table.Td>
            <Table.Td className="second">{p.spec.syncWindows?.length ?? 0}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Create({ denied, close }: { denied: string; close: () => void }) {
  const [name, setName] = useState('');
  const [description, setDescription] = useState('');
  const navigate = useNavigate();
  const create = useMutation(projectMutations.create());
  return (
    <Modal opened onClose={close} title={t('New project')}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (denied) return;
          create.mutate(
            {
              apiVersion: 'argoproj.io/v1alpha1',
              kind: 'AppProject',
              metadata: { name },
              spec: { description, sourceRepos: [], destinations: [] },
            },
            { onSuccess: () => void navigate({ to: '/projects/$name', params: { name }, search: { tab: 'edit' } }) },
          );
        }}
      >
        <Stack>
          {create.error && <Problem error={create.error} />}
          <TextInput
            label={t('Name')}
            required
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <TextInput
            label={t('Description')}
            value={description}
            onChange={(e) => setDescription(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name} loading={create.isPending}>
              {t('Create')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
