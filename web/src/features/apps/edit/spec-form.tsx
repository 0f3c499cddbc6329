import { Button, NumberInput, SegmentedControl, Switch } from '@mantine/core';
import { IconPlus, IconTrash } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { HubError } from '../../../api/errors';
import { t } from '../../../texts';
import { Problem } from '../../../ui/states';
import { at, fields, list, text } from '../object/read';
import { editQueries } from './api';
import { addSource, type Path, removeSource, sourcePaths, valueAt, write } from './document';
import {
  type Form,
  FoundField,
  LinesField,
  mapLines,
  Part,
  pairLines,
  SwitchField,
  TextField,
  textAt,
  textLines,
} from './fields';
import { aboutProject, refusesDestination, refusesSource } from './limits';
import { SourceForm } from './source-form';

/** Somebody without a right to a list writes what it would offer. */
const lacksRight = (error: unknown) => error instanceof HubError && error.detail.status === 403;

/** The form of an application. What it does not have stands in the YAML, and stays. */
export function SpecForm({ form, fresh }: { form: Form; fresh: boolean }) {
  const projects = useQuery(editQueries.projects());
  const clusters = useQuery(editQueries.clusters());
  const repositories = useQuery(editQueries.repositories());
  const failed = [projects, clusters, repositories].filter((q) => q.isError && !lacksRight(q.error));
  const project = projects.data?.find((p) => p.metadata.name === (textAt(form, ['spec', 'project']) || 'default'));
  return (
    <div className="edit-form">
      {failed[0] && <Problem error={failed[0].error} retry={() => failed.forEach((q) => void q.refetch())} />}
      <Part title={t('Application')}>
        {fresh && (
          <div className="edit-two">
            <TextField form={form} path={['metadata', 'name']} label={t('Name')} placeholder="web" required />
            <TextField
              form={form}
              path={['metadata', 'namespace']}
              label={t('Namespace of the application')}
              placeholder="argocd"
            />
          </div>
        )}
        <FoundField
          form={form}
          path={['spec', 'project']}
          label={t('Project')}
          description={project ? aboutProject(project) : projects.data ? t('There is none of that name.') : ''}
          found={(projects.data ?? []).map((p) => p.metadata.name)}
        />
      </Part>
      <SourcesPart form={form} limit={(url) => (project ? refusesSource(project, url) : '')} />
      <DestinationPart form={form} project={project} />
      <SyncPart form={form} />
      <AboutPart form={form} />
    </div>
  );
}

function SourcesPart({ form, limit }: { form: Form; limit: (url: string) => string }) {
  const paths = sourcePaths(form.value);
  const several = list(form.value, 'spec.sources').length > 0;
  return (
    <>
      {paths.map((path, i) => (
        <Part
          key={path.join('.')}
          title={several ? t('Source {{n}}', { n: i + 1 }) : t('Source')}
          about={text(valueAt(form.value, path), 'name')}
        >
          <SourceForm form={form} path={path} limit={limit} />
          {several && (
            <div className="edit-two">
              <TextField
                form={form}
                path={[...path, 'ref']}
                label={t('Ref')}
                description={t('Others take values from it as $ref')}
              />
              <TextField form={form} path={[...path, 'name']} label={t('Name of the source')} />
            </div>
          )}
          {several && (
            <Button
              variant="default"
              size="xs"
              leftSection={<IconTrash size={14} aria-hidden />}
              onClick={() => form.edit((tree) => removeSource(tree, i))}
            >
              {t('Remove source {{n}}', { n: i + 1 })}
            </Button>
          )}
        </Part>
      ))}
      <Button
        variant="default"
        size="xs"
        leftSection={<IconPlus size={14} aria-hidden />}
        onClick={() => form.edit(addSource)}
      >
        {t('Add a source')}
      </Button>
    </>
  );
}

/** How clusters are connected, where the API has the word that people read. */
const connections = new Map<string, string>([
  ['Connected', t('Connected')],
  ['Disconnected', t('Disconnected')],
]);

function DestinationPart({ form, project }: { form: Form; project: unknown }) {
  const clusters = useQuery(editQueries.clusters());
  const server = textAt(form, ['spec', 'destination', 'server']);
  const name = textAt(form, ['spec', 'destination', 'name']);
  const on = clusters.data?.find((c) => c.name === name || (server !== '' && c.server === server));
  const refused = project
    ? refusesDestination(project, {
        names: [name || on?.name || '', server || on?.server || ''],
        namespace: textAt(form, ['spec', 'destination', 'namespace']),
      })
    : '';
  const limited: Form = {
    ...form,
    problem: (p) => form.problem(p) ?? (refused && p.at(-1) === 'name' ? refused : undefined),
  };
  const take = (v: string) =>
    form.edit((tree) =>
      write(write(tree, ['spec', 'destination', 'server'], undefined), ['spec', 'destination', 'name'], v),
    );
  return (
    <Part title={t('Destination')}>
      <div className="edit-two">
        {server ? (
          <FoundField
            form={form}
            path={['spec', 'destination', 'server']}
            label={t('Address of the cluster')}
            description={t('A cluster can be named instead: empty this')}
            found={(clusters.data ?? []).flatMap((c) => (c.server ? [c.server] : []))}
          />
        ) : (
          <FoundField
            form={limited}
            path={['spec', 'destination', 'name']}
            label={t('Cluster')}
            description={
              on
                ? [
                    connections.get(on.connection) ?? on.connection,
                    ...(on.kubeVersion ? [t('Kubernetes {{kubeVersion}}', { kubeVersion: on.kubeVersion })] : []),
                  ].join(', ')
                : t('By its name')
            }
            required
            found={(clusters.data ?? []).map((c) => c.name)}
            take={take}
          />
        )}
        <TextField
          form={form}
          path={['spec', 'destination', 'namespace']}
          label={t('Namespace in the cluster')}
          description={t('For objects that name none')}
          placeholder="web"
        />
      </div>
    </Part>
  );
}

/** The sync options that a form switches; others stay as they are written. */
const options = [
  { name: 'CreateNamespace', label: t('Create the namespace') },
  { name: 'PruneLast', label: t('Prune last') },
  { name: 'ApplyOutOfSyncOnly', label: t('Apply only what differs') },
  { name: 'ServerSideApply', label: t('Server-side apply') },
  { name: 'RespectIgnoreDifferences', label: t('Leave ignored fields alone') },
  { name: 'FailOnSharedResource', label: t('Fail if another application has an object') },
] as const;

function SyncPart({ form }: { form: Form }) {
  const place: Path = ['spec', 'syncPolicy', 'automated'];
  const automated = valueAt(form.value, place);
  const on = automated !== undefined && automated !== null && at(automated, 'enabled') !== false;
  const held = list(form.value, 'spec.syncPolicy.syncOptions').map((o) => text(o));
  const setOption = (name: string, to: boolean) => {
    const others = held.filter((o) => !o.startsWith(`${name}=`));
    const next = to ? [...others, `${name}=true`] : others;
    form.set(['spec', 'syncPolicy', 'syncOptions'], next.length > 0 ? next : undefined);
  };
  const retry = valueAt(form.value, ['spec', 'syncPolicy', 'retry']);
  return (
    <Part title={t('Sync policy')} about={form.problem(['spec', 'syncPolicy'])}>
      <SegmentedControl
        aria-label={t('Automation')}
        value={on ? 'auto' : 'manual'}
        data={[
          { value: 'manual', label: t('Manual: people sync') },
          { value: 'auto', label: t('Automatic: each revision') },
        ]}
        onChange={(v) => {
          if (v !== 'auto') form.set(place, undefined);
          else if (automated && at(automated, 'enabled') === false) form.set([...place, 'enabled'], undefined);
          else form.set(place, {});
        }}
      />
      {on && (
        <div className="edit-switches">
          <SwitchField
            form={form}
            path={[...place, 'prune']}
            label={t('Prune')}
            description={t('Delete what is no longer in the source')}
          />
          <SwitchField
            form={form}
            path={[...place, 'selfHeal']}
            label={t('Self-heal')}
            description={t('Undo changes that others make in the cluster')}
          />
          <SwitchField
            form={form}
            path={[...place, 'allowEmpty']}
            label={t('Allow empty')}
            description={t('Prune even if nothing is rendered')}
          />
        </div>
      )}
      <div className="edit-switches">
        {options.map((o) => (
          <Switch
            key={o.name}
            label={o.label}
            checked={held.includes(`${o.name}=true`)}
            onChange={(e) => setOption(o.name, e.currentTarget.checked)}
          />
        ))}
      </div>
      <NumberInput
        label={t('Attempts after a failure')}
        description={t('0: none. Back-off stands in the YAML')}
        min={0}
        max={100}
        value={retry === undefined ? 0 : Number(fields(retry)['limit'] ?? 0)}
        onChange={(v) => {
          const limit = typeof v === 'number' ? v : 0;
          if (limit > 0) form.set(['spec', 'syncPolicy', 'retry', 'limit'], limit);
          else form.set(['spec', 'syncPolicy', 'retry'], undefined);
        }}
      />
    </Part>
  );
}

/** Under this annotation, a link of an application has its title behind it. */
const linkPrefix = 'link.argocd.argoproj.io/';

/** Links that stand in annotations, as lines. */
const linkLines = {
  show: (value: unknown) =>
    Object.entries(fields(value)).flatMap(([k, v]) =>
      k.startsWith(linkPrefix) ? [`${k.slice(linkPrefix.length)}=${text(v)}`] : [],
    ),
  parse: (lines: string[]): { value?: Record<string, string> | undefined; error: string } => {
    const read = mapLines.parse(lines);
    const bad = Object.entries(read.value ?? {}).find(([, url]) => !/^https?:\/\/\S+$/i.test(url));
    return bad ? { error: t('“{{url}}” is no address that begins with http:// or https://.', { url: bad[1] }) } : read;
  },
};

const plainLines = {
  show: (value: unknown) =>
    mapLines.show(Object.fromEntries(Object.entries(fields(value)).filter(([k]) => !k.startsWith(linkPrefix)))),
  parse: mapLines.parse,
};

function AboutPart({ form }: { form: Form }) {
  const annotations: Path = ['metadata', 'annotations'];
  const held = fields(valueAt(form.value, annotations));
  const links = Object.entries(held).filter(([k]) => k.startsWith(linkPrefix));
  const rest = Object.entries(held).filter(([k]) => !k.startsWith(linkPrefix));
  const put = (all: [string, unknown][]) => form.set(annotations, all.length > 0 ? Object.fromEntries(all) : undefined);
  return (
    <Part title={t('About it')}>
      <LinesField
        form={form}
        path={['metadata', 'labels']}
        label={t('Labels')}
        description={t('key=value, one on each line')}
        show={mapLines.show}
        parse={mapLines.parse}
        rows={2}
      />
      <LinesField
        form={form}
        path={annotations}
        label={t('Annotations')}
        description={t('key=value, one on each line')}
        show={plainLines.show}
        parse={plainLines.parse}
        rows={2}
        save={(v) => put([...Object.entries(v ?? {}), ...links])}
      />
      <LinesField
        form={form}
        path={annotations}
        label={t('Links')}
        description={t('title=https://…, one on each line')}
        show={linkLines.show}
        parse={linkLines.parse}
        rows={2}
        save={(v) =>
          put([...rest, ...Object.entries(v ?? {}).map(([k, url]): [string, unknown] => [linkPrefix + k, url])])
        }
      />
      <LinesField
        form={form}
        path={['spec', 'info']}
        label={t('Info')}
        description={t('name=value, shown to people')}
        show={pairLines.show}
        parse={pairLines.parse}
        rows={2}
      />
      <LinesField
        form={form}
        path={['metadata', 'finalizers']}
        label={t('Finalizers')}
        description={t('resources-finalizer.argocd.argoproj.io: its objects go with it')}
        show={textLines.show}
        parse={textLines.parse}
        rows={1}
      />
    </Part>
  );
}
