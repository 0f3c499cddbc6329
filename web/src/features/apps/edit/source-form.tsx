import { Badge, Button, NativeSelect } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Repository } from '../../../api/client';
import { sentence, words } from '../../../api/errors';
import { useDenied } from '../../../api/session';
import { ago, shortRevision } from '../../../format/format';
import { count, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Problem } from '../../../ui/states';
import { at } from '../object/read';
import { editMutations, editQueries } from './api';
import { type Path, valueAt, write } from './document';
import { type Form, FoundField, TextField, textAt } from './fields';
import { ToolForm } from './tool-form';

/** How addresses of one repository are written differently. */
const bare = (url: string) =>
  url
    .trim()
    .replace(/\/+$/, '')
    .replace(/\.git$/, '')
    .toLowerCase();

/** The known repository of an address; that of the project comes first. */
export function known(all: readonly Repository[], url: string, project: string): Repository | undefined {
  const same = all.filter((r) => bare(r.url) === bare(url));
  return same.find((r) => r.project === project) ?? same.find((r) => !r.project) ?? same[0];
}

/** What kind of source an address of a repository asks for. */
export function kindOf(repository: Repository | undefined, url: string, source: unknown): 'git' | 'chart' | 'oci' {
  if (repository?.type === 'helm') return 'chart';
  if (repository?.type === 'oci' || url.startsWith('oci://')) return 'oci';
  return at(source, 'chart') === undefined ? 'git' : 'chart';
}

/** One source: a repository, what of it, at which revision, and the parameters of its tool. */
export function SourceForm({ form, path, limit }: { form: Form; path: Path; limit: (url: string) => string }) {
  const repositories = useQuery(editQueries.repositories());
  const source = valueAt(form.value, path);
  const url = textAt(form, [...path, 'repoURL']);
  const repository = known(repositories.data ?? [], url, textAt(form, ['spec', 'project']));
  const kind = kindOf(repository, url, source);
  const choose = (next: string) => {
    const chosen = known(repositories.data ?? [], next, textAt(form, ['spec', 'project']));
    form.edit((tree) => {
      let out = write(tree, [...path, 'repoURL'], next);
      const wanted = kindOf(chosen, next, chosen ? {} : source);
      if (wanted === 'chart' && at(source, 'chart') === undefined) {
        out = write(
          write(write(out, [...path, 'path'], undefined), [...path, 'chart'], ''),
          [...path, 'targetRevision'],
          '',
        );
      }
      if (wanted === 'git' && at(source, 'chart') !== undefined && chosen) {
        out = write(
          write(write(out, [...path, 'chart'], undefined), [...path, 'path'], ''),
          [...path, 'targetRevision'],
          'HEAD',
        );
      }
      return out;
    });
  };
  const refused = limit(url);
  const limited: Form = refused
    ? { ...form, problem: (p) => (p.at(-1) === 'repoURL' ? refused : form.problem(p)) }
    : form;
  return (
    <>
      <FoundField
        form={limited}
        path={[...path, 'repoURL']}
        label={t('Repository')}
        placeholder="https://git.example.com/team/manifests.git"
        required
        found={(repositories.data ?? []).map((r) => r.url)}
        take={choose}
      />
      {url && <Connection url={url} repository={repository} loading={repositories.isPending} />}
      {kind === 'chart' ? (
        <ChartFields form={form} path={path} repository={repository} />
      ) : (
        <DirectoryFields form={form} path={path} repository={repository} />
      )}
      <ToolForm form={form} path={path} repository={connected(repository)} />
    </>
  );
}

/** A repository that can be browsed: one that was reached. */
export const connected = (r: Repository | undefined) => (r && r.connection.status !== 'Failed' ? r : undefined);

/** Whether the hub reaches the repository; one that it does not know can be connected here. */
function Connection({
  url,
  repository,
  loading,
}: {
  url: string;
  repository: Repository | undefined;
  loading: boolean;
}) {
  const denied = useDenied('repositories', 'create');
  const connect = useMutation(editMutations.connect());
  const [type, setType] = useState<'git' | 'helm' | 'oci'>(url.startsWith('oci://') ? 'oci' : 'git');
  if (loading) return <p className="quiet">{t('The repositories are listed …')}</p>;
  if (!repository) {
    return (
      <div className="edit-connect">
        <p>{t('The hub does not know this repository yet.')}</p>
        <NativeSelect
          aria-label={t('Type of the repository')}
          value={type}
          data={[
            { value: 'git', label: t('Git') },
            { value: 'helm', label: t('Charts') },
            { value: 'oci', label: t('OCI registry') },
          ]}
          onChange={(e) =>
            setType(e.currentTarget.value === 'helm' ? 'helm' : e.currentTarget.value === 'oci' ? 'oci' : 'git')
          }
        />
        <ActionButton
          why={denied}
          variant="default"
          loading={connect.isPending}
          onClick={() => connect.mutate({ url, type })}
        >
          {t('Connect')}
        </ActionButton>
        {connect.error && <Problem error={connect.error} />}
      </div>
    );
  }
  const { status, message, fetchedAt } = repository.connection;
  if (status === 'Failed') {
    return (
      <p className="edit-failed" role="alert">
        {t('It cannot be reached: {{why}}', { why: sentence(message ?? t('the reason is not known')) })}{' '}
        <Link to="/repositories" search={{ q: repository.url }}>
          {t('Give it a credential')}
        </Link>
      </p>
    );
  }
  return (
    <p className="quiet" role="status">
      {status === 'Successful'
        ? fetchedAt
          ? t('Reached, fetched {{time}}.', { time: ago(fetchedAt, Date.now()) })
          : t('Reached.')
        : t('It is being reached …')}
    </p>
  );
}

interface Browsing {
  form: Form;
  path: Path;
  repository: Repository | undefined;
}

/** A directory of Git or of an artifact. */
function DirectoryFields({ form, path, repository }: Browsing) {
  const id = connected(repository)?.id ?? '';
  const revision = textAt(form, [...path, 'targetRevision']);
  const [settled] = useDebouncedValue(revision, 350);
  const fetched = repository?.connection.status === 'Successful';
  const refs = useQuery({ ...editQueries.refs(id, ''), enabled: fetched });
  const apps = useQuery({ ...editQueries.apps(id, settled), enabled: fetched });
  const names = [...(refs.data?.branches ?? []), ...(refs.data?.tags ?? [])];
  const commit = names.find((r) => r.name === revision)?.commit;
  return (
    <>
      <FoundField
        form={form}
        path={[...path, 'targetRevision']}
        label={t('Revision')}
        description={
          commit
            ? t('Now {{revision}}', { revision: shortRevision(commit) })
            : refs.data
              ? [
                  count(refs.data.branches.length, '{{n}} branch', '{{n}} branches'),
                  count(refs.data.tags.length, '{{n}} tag', '{{n}} tags'),
                ].join(', ')
              : t('A branch, a tag or a commit')
        }
        placeholder="HEAD"
        found={names.map((r) => r.name)}
      />
      <FoundField
        form={form}
        path={[...path, 'path']}
        label={t('Path')}
        description={t('A directory, from the root of the repository')}
        placeholder="apps/web"
        found={(apps.data ?? []).map((a) => a.path)}
      />
      {apps.error && <p className="edit-failed">{words(apps.error).title}</p>}
      {apps.data && (
        <Found apps={apps.data} now={textAt(form, [...path, 'path'])} choose={(p) => form.set([...path, 'path'], p)} />
      )}
    </>
  );
}

/** So many directories are shown at once; typing narrows them down. */
const listed = 60;

/** The sources that the hub found in the repository. */
function Found(props: { apps: { path: string; type: string }[]; now: string; choose: (path: string) => void }) {
  const { apps, now, choose } = props;
  const exact = apps.some((a) => a.path === now);
  const shown = exact || !now ? apps : apps.filter((a) => a.path.includes(now));
  if (apps.length === 0) {
    return (
      <p className="quiet">
        {t('No chart, kustomization or plugin was found. Any directory with manifests can be typed.')}
      </p>
    );
  }
  return (
    <fieldset className="edit-found">
      <legend>
        {t('Found in it')} <span className="quiet">{apps.length}</span>
      </legend>
      <div>
        {shown.slice(0, listed).map((a) => (
          <Button
            key={a.path}
            size="compact-sm"
            variant="default"
            aria-pressed={a.path === now}
            onClick={() => choose(a.path)}
          >
            {a.path} <span className="quiet">{a.type}</span>
          </Button>
        ))}
        {shown.length > listed && (
          <p className="quiet">{t('{{n}} more: type a part of the path.', { n: shown.length - listed })}</p>
        )}
        {shown.length === 0 && <p className="quiet">{t('None has “{{now}}” in its path.', { now })}</p>}
      </div>
    </fieldset>
  );
}

/** A chart of an index or a registry, and its version. */
function ChartFields({ form, path, repository }: Browsing) {
  const chart = textAt(form, [...path, 'chart']);
  const [settled] = useDebouncedValue(chart, 350);
  const reached = repository?.connection.status !== 'Failed' && repository !== undefined;
  const index = reached && repository?.type === 'helm' && !repository.enableOCI;
  const charts = useQuery({ ...editQueries.charts(repository?.id ?? ''), enabled: index });
  const refs = useQuery({
    ...editQueries.refs(repository?.id ?? '', settled),
    enabled: reached && !index && settled !== '',
  });
  const versions = index
    ? (charts.data?.find((c) => c.name === chart)?.versions ?? [])
    : (refs.data?.tags ?? []).map((tag) => tag.name);
  const error = charts.error ?? refs.error;
  return (
    <>
      <FoundField
        form={form}
        path={[...path, 'chart']}
        label={t('Chart')}
        description={charts.data ? count(charts.data.length, '{{n}} chart', '{{n}} charts') : t('Its name')}
        required
        found={(charts.data ?? []).map((c) => c.name)}
      />
      {error && <p className="edit-failed">{words(error).title}</p>}
      <FoundField
        form={form}
        path={[...path, 'targetRevision']}
        label={t('Version')}
        description={
          versions.length > 0
            ? t('Newest {{version}}; a range such as ^1.2 follows it', { version: versions[0] ?? '' })
            : t('A version, or a range such as ^1.2')
        }
        found={versions}
      />
      <TextField
        form={form}
        path={[...path, 'helm', 'releaseName']}
        label={t('Release name')}
        placeholder={textAt(form, ['metadata', 'name'])}
      />
      {chart && versions.length > 0 && (
        <Badge variant="light">{count(versions.length, '{{n}} version', '{{n}} versions')}</Badge>
      )}
    </>
  );
}
