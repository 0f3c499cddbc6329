import { ActionIcon, Menu, Table, Text, TextInput } from '@mantine/core';
import { IconDots, IconSearch } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import type { Repository } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Confirm, Page } from '../../ui/page';
import type { ShapeName, Tone } from '../../ui/shapes';
import { Nothing, Screen } from '../../ui/states';
import { repositoryMutations, repositoryQueries } from './api';
import { problemOf } from './model';
import { RepositoryDialog } from './repository-form';
import { Templates } from './templates';
import { Certificates, Keys } from './trust';

const looks: Record<Repository['connection']['status'], { label: string; tone: Tone; shape: ShapeName }> = {
  Successful: { label: t('Successful'), tone: 'ok', shape: 'done' },
  Failed: { label: t('Failed'), tone: 'failed', shape: 'failed' },
  Unknown: { label: t('Not fetched'), tone: 'unknown', shape: 'unknown' },
};

const tabs = [
  { key: 'repositories', label: t('Repositories') },
  { key: 'templates', label: t('Credential templates') },
  { key: 'hosts', label: t('Known hosts') },
  { key: 'certificates', label: t('Certificates') },
  { key: 'keys', label: t('GnuPG keys') },
] as const;

/** The repositories, what they are reached with, and whom the hub trusts. */
export function RepositoryList() {
  const search = useSearch({ from: '/shell/repositories' });
  const navigate = useNavigate({ from: '/repositories' });
  const set = (change: Partial<Record<'tab' | 'q' | 'edit' | 'remove', string | undefined>>) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const denied = useDenied('repositories', 'create');
  const repositories = useQuery(repositoryQueries.list());
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'repositories';
  const all = repositories.data?.items ?? [];
  const edited = all.find((r) => r.id === search.edit);
  const removed = all.find((r) => r.id === search.remove);
  return (
    <Page
      title={t('Repositories')}
      about={t('Where manifests and charts come from')}
      actions={
        tab === 'repositories' && (
          <ActionButton why={denied} onClick={() => set({ edit: 'new' })}>
            {t('Add a repository')}
          </ActionButton>
        )
      }
      tabs={tabs.map((tab) => (tab.key === 'repositories' ? { ...tab, count: repositories.data?.items.length } : tab))}
      tab={tab}
      open={(next) => set({ tab: next, q: undefined, edit: undefined, remove: undefined })}
    >
      {tab === 'repositories' && (
        <>
          {all.length > 0 && (
            <TextInput
              aria-label={t('Search repositories')}
              placeholder={t('URL, name or project')}
              leftSection={<IconSearch size={16} aria-hidden />}
              value={search.q ?? ''}
              onChange={(e) => set({ q: e.currentTarget.value })}
            />
          )}
          <Screen
            query={repositories}
            empty={(d) =>
              d.items.length === 0 ? (
                <Nothing title={t('No repository is known yet.')}>
                  {t('One appears with the first application that uses it.')}
                </Nothing>
              ) : undefined
            }
          >
            {(d) => (
              <Rows
                repositories={d.items.filter((r) =>
                  `${r.url} ${r.name ?? ''} ${r.project ?? ''}`.toLowerCase().includes((search.q ?? '').toLowerCase()),
                )}
                edit={(id) => set({ edit: id })}
                remove={(id) => set({ remove: id })}
              />
            )}
          </Screen>
          {(search.edit === 'new' || edited) && (
            <RepositoryDialog repository={edited} close={() => set({ edit: undefined })} />
          )}
          {removed && <Remove repository={removed} close={() => set({ remove: undefined })} />}
        </>
      )}
      {tab === 'templates' && <Templates />}
      {tab === 'hosts' && <Certificates type="ssh" />}
      {tab === 'certificates' && <Certificates type="https" />}
      {tab === 'keys' && <Keys />}
    </Page>
  );
}

function Rows(props: { repositories: Repository[]; edit: (id: string) => void; remove: (id: string) => void }) {
  const { repositories, edit, remove } = props;
  const refresh = useMutation(repositoryMutations.refresh());
  if (repositories.length === 0) return <Nothing title={t('No repository matches the search.')} />;
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('Repositories')} mt="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('URL')}</Table.Th>
            <Table.Th className="second">{t('Type')}</Table.Th>
            <Table.Th>{t('Connection')}</Table.Th>
            <Table.Th className="second">{t('Fetched')}</Table.Th>
            <Table.Th className="second">{t('Credential')}</Table.Th>
            <Table.Th aria-label={t('Actions')} />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {repositories.map((r) => (
            <Table.Tr key={r.id}>
              <Table.Td className="breakable" miw={240}>
                {r.url}
                {(r.name || r.project) && (
                  <Text size="xs" c="dimmed">
                    {r.project
                      ? t('{{name}} for project {{project}} alone', { name: r.name ?? '', project: r.project })
                      : r.name}
                  </Text>
                )}
              </Table.Td>
              <Table.Td className="second">{r.type}</Table.Td>
              <Table.Td>
                <StateMark look={looks[r.connection.status]} weight="quiet" />
                {r.connection.message && (
                  <Text size="xs" className="breakable">
                    {sentence(problemOf(r))}
                  </Text>
                )}
              </Table.Td>
              <Table.Td className="second" title={exact(r.connection.fetchedAt)}>
                {ago(r.connection.fetchedAt, Date.now())}
              </Table.Td>
              <Table.Td className="second">
                {r.hasCredential
                  ? (r.username ?? t('stored'))
                  : r.registered
                    ? t('none')
                    : t('none; an application names it')}
              </Table.Td>
              <Table.Td>
                <Menu position="bottom-end">
                  <Menu.Target>
                    <ActionIcon variant="subtle" color="gray" aria-label={t('Actions for {{url}}', { url: r.url })}>
                      <IconDots size={16} aria-hidden />
                    </ActionIcon>
                  </Menu.Target>
                  <Menu.Dropdown>
                    <Menu.Item onClick={() => refresh.mutate(r.id)}>{t('Fetch now')}</Menu.Item>
                    <Menu.Item renderRoot={(p) => <Link to="/applications" search={{ q: `repo:"${r.url}"` }} {...p} />}>
                      {t('Its applications')}
                    </Menu.Item>
                    <Menu.Item onClick={() => edit(r.id)}>{r.registered ? t('Edit') : t('Register')}</Menu.Item>
                    {r.registered && (
                      <Menu.Item color="red" onClick={() => remove(r.id)}>
                        {t('Remove')}
                      </Menu.Item>
                    )}
                  </Menu.Dropdown>
                </Menu>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Remove({ repository, close }: { repository: Repository; close: () => void }) {
  const denied = useDenied('repositories', 'delete');
  const plan = useQuery({ ...repositoryQueries.deletion(repository.id), enabled: !denied });
  const remove = useMutation(repositoryMutations.remove());
  return (
    <Confirm
      title={t('Remove the repository?')}
      action={t('Remove')}
      effects={plan.data?.effects}
      denied={denied}
      error={remove.error ?? plan.error}
      pending={remove.isPending || (plan.isPending && !denied)}
      run={() => remove.mutate(repository.id, { onSuccess: close })}
      close={close}
    >
      <Text size="sm" className="breakable">
        {repository.url}
      </Text>
    </Confirm>
  );
}
