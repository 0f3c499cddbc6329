import { Alert, Anchor, Button, Group, SegmentedControl, Stack, Table, Text, Textarea, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { Fragment, useState } from 'react';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { CodeEditor } from '../../ui/code-editor';
import { Confirm, Once, Page, SectionTitle } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { WindowTable } from '../../ui/sync-windows';
import { type AppProject, projectMutations, projectQueries } from './api';
import { Calendar } from './calendar';
import { destinationsOf, kindsOf, readText, simpleOf, sourcesOf, textOf, withSimple } from './model';

const tabs = [
  { key: 'summary', label: t('Summary') },
  { key: 'roles', label: t('Roles') },
  { key: 'windows', label: t('Sync windows') },
  { key: 'events', label: t('Events') },
  { key: 'edit', label: t('Edit') },
] as const;

/** One project: what it permits, its roles with tokens, its windows, and who changed it. */
export function ProjectPage() {
  const { name } = useParams({ from: '/shell/projects/$name' });
  const search = useSearch({ from: '/shell/projects/$name' });
  const navigate = useNavigate({ from: '/projects/$name' });
  const set = (change: { tab?: string | undefined; ask?: string | undefined; form?: string | undefined }) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const project = useQuery(projectQueries.detailed(name));
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'summary';
  const noDelete = useDenied('projects', 'delete', name);
  const d = project.data;
  return (
    <Page
      title={name}
      about={d?.project.spec.description}
      actions={
        <>
          <Button
            variant="default"
            renderRoot={(p) => <Link to="/applications" search={{ q: `project:${JSON.stringify(name)}` }} {...p} />}
          >
            {t('Its applications')}
          </Button>
          <ActionButton why={noDelete} variant="outline" color="red" onClick={() => set({ ask: 'remove' })}>
            {t('Delete')}
          </ActionButton>
        </>
      }
      tabs={tabs.map((tab) => {
        if (tab.key === 'roles') return { ...tab, count: d?.project.spec.roles?.length };
        if (tab.key === 'windows') return { ...tab, count: d?.project.spec.syncWindows?.length };
        return tab;
      })}
      tab={tab}
      open={(next) => set({ tab: next })}
    >
      <Screen query={project}>
        {({ project: p, globalProjects, repositories, clusters, problem }) => (
          <Stack>
            {problem && <Alert color="red" role="alert" title={sentence(problem)} />}
            {tab === 'summary' && (
              <Summary
                project={p}
                inherits={globalProjects.map((g) => g.metadata.name)}
                repositories={repositories.map((r) => r.url)}
                clusters={clusters.map((c) => c.name)}
              />
            )}
            {tab === 'roles' && <Roles project={p} />}
            {tab === 'windows' && <Windows name={name} />}
            {tab === 'events' && <Events name={name} />}
            {tab === 'edit' && (
              <Edit key={p.metadata.resourceVersion} project={p} form={search.form} open={(form) => set({ form })} />
            )}
          </Stack>
        )}
      </Screen>
      {search.ask === 'remove' && (
        <Remove
          name={name}
          denied={noDelete}
          close={() => set({ ask: undefined })}
          gone={() => void navigate({ to: '/projects' })}
        />
      )}
    </Page>
  );
}

function Summary(props: { project: AppProject; inherits: string[]; repositories: string[]; clusters: string[] }) {
  const { project: p, inherits, repositories, clusters } = props;
  const links = useQuery(projectQueries.links(p.metadata.name));
  const facts: [string, string][] = [
    [t('Sources'), sourcesOf(p)],
    [t('Destinations'), destinationsOf(p)],
    [t('Cluster-scoped kinds'), kindsOf(p.spec.clusterResourceWhitelist, t('none'))],
    [t('… but never'), kindsOf(p.spec.clusterResourceBlacklist, '')],
    [t('Namespaced kinds'), kindsOf(p.spec.namespaceResourceWhitelist, t('every kind'))],
    [t('… but never'), kindsOf(p.spec.namespaceResourceBlacklist, '')],
    [t('Inherits from'), inherits.join(', ')],
    [t('Own repositories'), repositories.join(', ')],
    [t('Own clusters'), clusters.join(', ')],
  ];
  return (
    <>
      <dl className="facts-list wide-terms">
        {facts
          .filter(([, value]) => value)
          .map(([label, value]) => (
            <Fragment key={`${label} ${value}`}>
              <dt>{label}</dt>
              <dd className="breakable">{value}</dd>
            </Fragment>
          ))}
      </dl>
      {links.data && links.data.items.length > 0 && (
        <section aria-label={t('Links')}>
          <SectionTitle>{t('Links')}</SectionTitle>
          {links.data.items.map((l) => (
            <Text key={l.url}>
              <Anchor href={l.url} target="_blank" rel="noreferrer">
                {l.title}
              </Anchor>{' '}
              <Text span c="dimmed">
                {l.description}
              </Text>
            </Text>
          ))}
        </section>
      )}
      {links.data?.problems?.map((problem) => (
        <Text key={problem} size="sm" c="dimmed">
          {t('A link is left out: {{problem}}', { problem })}
        </Text>
      ))}
    </>
  );
}

function Roles({ project: p }: { project: AppProject }) {
  const roles = p.spec.roles ?? [];
  if (roles.length === 0)
    return (
      <Nothing title={t('The project has no roles.')}>
        {t('A role gives groups and tokens rights on the applications of this project alone.')}
      </Nothing>
    );
  return roles.map((r) => (
    <section key={r.name} aria-label={t('Role {{name}}', { name: r.name })}>
      <SectionTitle>{r.name}</SectionTitle>
      <Text c="dimmed">{r.description}</Text>
      <Text size="sm">{t('Groups: {{groups}}', { groups: r.groups?.join(', ') || t('none') })}</Text>
      <pre className="policies">{(r.policies ?? []).join('\n') || t('no rules')}</pre>
      <Tokens name={p.metadata.name} role={r.name} />
    </section>
  ));
}

function Tokens({ name, role }: { name: string; role: string }) {
  const denied = useDenied('projects', 'update', name);
  const tokens = useQuery(projectQueries.tokens(name, role));
  const [label, setLabel] = useState('');
  const create = useMutation(projectMutations.createToken(name, role));
  const revoke = useMutation(projectMutations.removeToken(name, role));
  return (
    <Stack gap="xs">
      {create.error && <Problem error={create.error} />}
      <Screen query={tokens}>
        {(d) =>
          d.items.length === 0 ? (
            <Text c="dimmed">{t('No tokens.')}</Text>
          ) : (
            <Table aria-label={t('Tokens of {{role}}', { role })}>
              <Table.Tbody>
                {d.items.map((token) => (
                  <Table.Tr key={token.id}>
                    <Table.Td>{token.name}</Table.Td>
                    <Table.Td title={exact(token.usedAt)}>
                      {t('used {{time}}', { time: ago(token.usedAt, Date.now()) })}
                    </Table.Td>
                    <Table.Td>{t('ends {{time}}', { time: exact(token.expiresAt) })}</Table.Td>
                    <Table.Td>
                      <ActionButton
                        why={denied}
                        size="compact-sm"
                        variant="subtle"
                        color="red"
                        aria-label={t('Revoke {{name}}', { name: token.name })}
                        onClick={() => revoke.mutate(token.id)}
                      >
                        {t('Revoke')}
                      </ActionButton>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )
        }
      </Screen>
      <Group align="flex-end" gap="xs">
        <TextInput
          label={t('Name of a new token of {{role}}', { role })}
          value={label}
          onChange={(e) => setLabel(e.currentTarget.value)}
        />
        <ActionButton
          why={denied}
          variant="default"
          disabled={!label}
          loading={create.isPending}
          onClick={() => create.mutate({ name: label }, { onSuccess: () => setLabel('') })}
        >
          {t('Make a token')}
        </ActionButton>
      </Group>
      {create.data && (
        <Once
          what={t('Token {{name}}', { name: create.data.info.name })}
          secret={create.data.token}
          close={() => create.reset()}
        />
      )}
    </Stack>
  );
}

function Windows({ name }: { name: string }) {
  const windows = useQuery(projectQueries.windows(name));
  return (
    <Screen
      query={windows}
      empty={(d) =>
        d.all.length === 0 ? (
          <Nothing title={t('No sync windows: its applications may be synchronised at any time.')} />
        ) : undefined
      }
    >
      {(d) => (
        <Stack>
          <Calendar windows={d.all} />
          <WindowTable windows={d.all} label={t('Sync windows of {{name}}', { name })} />
        </Stack>
      )}
    </Screen>
  );
}

function Events({ name }: { name: string }) {
  const denied = useDenied('audit', 'get');
  const events = useQuery({ ...projectQueries.events(name), enabled: !denied });
  if (denied) return <Nothing title={t('You may not see who did what here.')}>{denied}</Nothing>;
  return (
    <Screen
      query={events}
      empty={(d) => (d.items.length === 0 ? <Nothing title={t('Nobody has changed this project.')} /> : undefined)}
    >
      {(d) => (
        <Table aria-label={t('Events')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Time')}</Table.Th>
              <Table.Th>{t('What')}</Table.Th>
              <Table.Th>{t('By')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {d.items.map((r) => (
              <Table.Tr key={r.seq}>
                <Table.Td title={exact(r.at)}>{ago(r.at, Date.now())}</Table.Td>
                <Table.Td>
                  {r.action} {r.object} {r.result !== 'allowed' && `(${r.result})`}
                </Table.Td>
                <Table.Td>{r.actor}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Screen>
  );
}

/** Changes a project by a form of what is changed often, or as text. */
function Edit({
  project,
  form,
  open,
}: {
  project: AppProject;
  form: string | undefined;
  open: (form: string | undefined) => void;
}) {
  const denied = useDenied('projects', 'update', project.metadata.name);
  const [draft, setDraft] = useState(project);
  const [text, setText] = useState(() => textOf(project));
  const [problem, setProblem] = useState('');
  const update = useMutation(projectMutations.update(project.metadata.name));
  const yaml = form === 'yaml';
  const change = (next: AppProject) => {
    setDraft(next);
    setText(textOf(next));
    setProblem('');
  };
  const write = (next: string) => {
    setText(next);
    const read = readText(next, project);
    setProblem(read.error);
    if (read.project) setDraft(read.project);
  };
  const simple = simpleOf(draft);
  return (
    <Stack>
      {update.error && <Problem error={update.error} />}
      {update.data?.warnings?.map((w) => (
        <Alert key={w} color="yellow" title={sentence(w)} />
      ))}
      <Group justify="space-between">
        <SegmentedControl
          aria-label={t('Form or text')}
          size="xs"
          value={yaml ? 'yaml' : 'form'}
          data={[
            { value: 'form', label: t('Form') },
            { value: 'yaml', label: t('YAML') },
          ]}
          onChange={(next) => open(next === 'yaml' ? 'yaml' : undefined)}
        />
        <ActionButton
          why={denied}
          disabled={problem !== '' || text === textOf(project)}
          loading={update.isPending}
          onClick={() => update.mutate(draft)}
        >
          {t('Save project')}
        </ActionButton>
      </Group>
      {yaml ? (
        <>
          <CodeEditor
            label={t('Project as YAML')}
            language="yaml"
            value={text}
            {...(denied ? {} : { change: write })}
          />
          {problem && <Text role="alert">{sentence(problem)}</Text>}
        </>
      ) : (
        <>
          <TextInput
            label={t('Description')}
            value={simple.description}
            onChange={(e) => change(withSimple(draft, { ...simple, description: e.currentTarget.value }))}
          />
          <List
            label={t('Sources')}
            description={t('A repository on each line; * stands for any text, ! before it denies')}
            value={simple.sources}
            change={(sources) => change(withSimple(draft, { ...simple, sources }))}
          />
          <List
            label={t('Destinations')}
            description={t('A cluster and a namespace on each line, such as prod-eu-1 shop-*')}
            value={simple.destinations}
            change={(destinations) => change(withSimple(draft, { ...simple, destinations }))}
          />
        </>
      )}
    </Stack>
  );
}

/** A list with an entry on each line, which is read when it is left. */
function List(props: { label: string; description: string; value: string; change: (value: string) => void }) {
  const { label, description, value, change } = props;
  const [typed, setTyped] = useState(value);
  return (
    <Textarea
      label={label}
      description={description}
      rows={5}
      spellCheck={false}
      value={typed}
      onChange={(e) => {
        setTyped(e.currentTarget.value);
        change(e.currentTarget.value);
      }}
    />
  );
}

function Remove({ name, denied, close, gone }: { name: string; denied: string; close: () => void; gone: () => void }) {
  const remove = useMutation(projectMutations.remove(name));
  return (
    <Confirm
      title={t('Delete project {{name}}?', { name })}
      action={t('Delete the project')}
      typed={name}
      effects={[
        t('Its roles and their tokens stop working.'),
        t('It is refused while an application uses the project.'),
      ]}
      denied={denied}
      error={remove.error}
      pending={remove.isPending}
      run={() => remove.mutate(undefined, { onSuccess: gone })}
      close={close}
    />
  );
}
