import { ActionIcon, TagsInput, Textarea, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconX } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Repository } from '../../../api/client';
import { words } from '../../../api/errors';
import { t } from '../../../texts';
import { at, fields, list, text } from '../object/read';
import { type AppDetails, editQueries } from './api';
import { type Path, valueAt } from './document';
import { type Form, FoundField, LinesField, pairLines, SwitchField, TextField, textAt } from './fields';

/** What the hub says that a source is, once its writer rests. */
function useDetails(form: Form, path: Path, repository: Repository | undefined) {
  const at = JSON.stringify({
    path: textAt(form, [...path, 'path']),
    chart: textAt(form, [...path, 'chart']),
    revision: textAt(form, [...path, 'targetRevision']),
    plugin: textAt(form, [...path, 'plugin', 'name']),
  });
  const [settled] = useDebouncedValue(at, 400);
  const where: { path?: string; chart?: string; revision?: string; plugin?: string } = JSON.parse(settled);
  return useQuery({
    ...editQueries.details(repository?.id ?? '', where),
    enabled: repository?.connection.status === 'Successful' && Boolean(where.path || where.chart),
  });
}

/** The tool that a source is written for, if it says so itself. */
export function toolOf(source: unknown, details: AppDetails | undefined): AppDetails['type'] | undefined {
  if (at(source, 'plugin') !== undefined) return 'Plugin';
  if (at(source, 'helm') !== undefined || at(source, 'chart') !== undefined) return 'Helm';
  if (at(source, 'kustomize') !== undefined) return 'Kustomize';
  if (details) return details.type;
  return at(source, 'directory') !== undefined ? 'Directory' : undefined;
}

interface Props {
  form: Form;
  path: Path;
  details: AppDetails | undefined;
}

/** The parameters of the tool that renders a source, as they were found in it. */
export function ToolForm({ form, path, repository }: { form: Form; path: Path; repository: Repository | undefined }) {
  const details = useDetails(form, path, repository);
  const source = valueAt(form.value, path);
  const tool = toolOf(source, details.data);
  if (text(source, 'ref') && !text(source, 'path') && !text(source, 'chart')) {
    return (
      <p className="quiet">
        {t('Others take their values from it as {{ref}}; it renders nothing itself.', {
          ref: `$${text(source, 'ref')}`,
        })}
      </p>
    );
  }
  return (
    <>
      {details.error && (
        <p className="edit-failed" role="alert">
          {words(details.error).title}
        </p>
      )}
      {details.isFetching && <p className="quiet">{t('The parameters are looked for …')}</p>}
      {tool && (
        <fieldset className="edit-tool">
          <legend>
            {tool === 'Plugin'
              ? t('Plugin {{name}} parameters', { name: details.data?.plugin?.name ?? '' })
              : t('{{tool}} parameters', { tool })}
          </legend>
          {tool === 'Helm' && <HelmForm form={form} path={path} details={details.data} />}
          {tool === 'Kustomize' && <KustomizeForm form={form} path={path} details={details.data} />}
          {tool === 'Directory' && <DirectoryForm form={form} path={path} details={details.data} />}
          {tool === 'Plugin' && <PluginForm form={form} path={path} details={details.data} />}
        </fieldset>
      )}
    </>
  );
}

const texts = (value: unknown) => (Array.isArray(value) ? value.map((v: unknown) => text(v)) : []);

function HelmForm({ form, path, details }: Props) {
  const files = [...path, 'helm', 'valueFiles'];
  const values = [...path, 'helm', 'values'];
  const structured = valueAt(form.value, [...path, 'helm', 'valuesObject']) !== undefined;
  return (
    <>
      <TagsInput
        label={t('Value files')}
        description={t("From the chart's directory, in their order; $ref/file of another source")}
        data={details?.helm?.valueFiles ?? []}
        value={texts(valueAt(form.value, files))}
        onChange={(v) => form.set(files, v.length > 0 ? v : undefined)}
        comboboxProps={{ withinPortal: true }}
      />
      <Overrides form={form} path={path} found={details?.helm?.parameters ?? []} />
      {structured ? (
        <p className="quiet">{t('Its values are an object: change them in the YAML.')}</p>
      ) : (
        <Textarea
          label={t('Values')}
          description={t('YAML that overrides the value files')}
          autosize
          minRows={2}
          maxRows={14}
          spellCheck={false}
          classNames={{ input: 'mono' }}
          value={text(valueAt(form.value, values))}
          onChange={(e) => form.set(values, e.currentTarget.value || undefined)}
        />
      )}
      <SwitchField
        form={form}
        path={[...path, 'helm', 'ignoreMissingValueFiles']}
        label={t('Skip value files that are missing')}
      />
      <SwitchField form={form} path={[...path, 'helm', 'skipCrds']} label={t('Leave out CRDs')} />
    </>
  );
}

/** So many parameters are shown at once; a search finds the others. */
const listed = 24;

/** The values of a chart, each with what the application sets instead. */
function Overrides({
  form,
  path,
  found,
}: {
  form: Form;
  path: Path;
  found: readonly { name: string; value: string }[];
}) {
  const [search, setSearch] = useState('');
  const place = [...path, 'helm', 'parameters'];
  const set = list(valueAt(form.value, place), '');
  const held = new Map(set.map((p) => [text(p, 'name'), text(p, 'value')]));
  const missing = [...held.keys()].filter((n) => !found.some((f) => f.name === n)).map((name) => ({ name, value: '' }));
  const all = [...missing, ...found];
  if (all.length === 0) return null;
  const shown = all.filter((p) => p.name.toLowerCase().includes(search.toLowerCase()));
  const ordered = [...shown.filter((p) => held.has(p.name)), ...shown.filter((p) => !held.has(p.name))];
  const change = (name: string, value: string | undefined) => {
    const others = set.filter((p) => text(p, 'name') !== name);
    const own = fields(set.find((p) => text(p, 'name') === name));
    const next =
      value === undefined
        ? others
        : held.has(name)
          ? set.map((p) => (text(p, 'name') === name ? { ...own, value } : p))
          : [...set, { name, value }];
    form.set(place, next.length > 0 ? next : undefined);
  };
  return (
    <section className="edit-overrides" aria-label={t('Values of the chart')}>
      <TextInput
        label={t('Values of the chart, {{n}}', { n: all.length })}
        description={
          held.size > 0 ? t('{{size}} set here', { size: held.size }) : t('What is left empty stays as the chart says')
        }
        placeholder={t('Find a value')}
        value={search}
        onChange={(e) => setSearch(e.currentTarget.value)}
      />
      <ul>
        {ordered.slice(0, listed).map((p) => (
          <li key={p.name} data-set={held.has(p.name)}>
            <span className="mono breakable">{p.name}</span>
            <TextInput
              size="xs"
              aria-label={p.name}
              placeholder={p.value}
              value={held.get(p.name) ?? ''}
              onChange={(e) => change(p.name, e.currentTarget.value)}
              rightSection={
                held.has(p.name) ? (
                  <ActionIcon
                    variant="subtle"
                    color="gray"
                    size="sm"
                    aria-label={t('Reset {{name}}', { name: p.name })}
                    onClick={() => change(p.name, undefined)}
                  >
                    <IconX size={14} aria-hidden />
                  </ActionIcon>
                ) : undefined
              }
            />
          </li>
        ))}
      </ul>
      {shown.length > listed && (
        <p className="quiet">{t('{{n}} more: search for them.', { n: shown.length - listed })}</p>
      )}
    </section>
  );
}

function KustomizeForm({ form, path, details }: Props) {
  const images = [...path, 'kustomize', 'images'];
  return (
    <>
      <TagsInput
        label={t('Images')}
        description={t('name:tag or name=other:tag; those that it uses are offered')}
        data={details?.kustomize?.images ?? []}
        value={texts(valueAt(form.value, images))}
        onChange={(v) => form.set(images, v.length > 0 ? v : undefined)}
      />
      <div className="edit-two">
        <TextField form={form} path={[...path, 'kustomize', 'namePrefix']} label={t('Name prefix')} />
        <TextField form={form} path={[...path, 'kustomize', 'nameSuffix']} label={t('Name suffix')} />
      </div>
      <TextField form={form} path={[...path, 'kustomize', 'namespace']} label={t('Namespace')} />
    </>
  );
}

function DirectoryForm({ form, path }: Props) {
  return (
    <>
      <SwitchField form={form} path={[...path, 'directory', 'recurse']} label={t('With its subdirectories')} />
      <div className="edit-two">
        <TextField form={form} path={[...path, 'directory', 'include']} label={t('Only files')} placeholder="*.yaml" />
        <TextField
          form={form}
          path={[...path, 'directory', 'exclude']}
          label={t('Not files')}
          placeholder="{test,draft}-*.yaml"
        />
      </div>
    </>
  );
}

function PluginForm({ form, path, details }: Props) {
  const plugins = useQuery(editQueries.plugins());
  const place = [...path, 'plugin', 'parameters'];
  const set = list(valueAt(form.value, place), '');
  const written = (name: string) =>
    text(
      set.find((p) => text(p, 'name') === name),
      'string',
    );
  const change = (name: string, value: string) => {
    const others = set.filter((p) => text(p, 'name') !== name);
    const next = value ? [...others, { name, string: value }] : others;
    form.set(place, next.length > 0 ? next : undefined);
  };
  return (
    <>
      <FoundField
        form={form}
        path={[...path, 'plugin', 'name']}
        label={t('Plugin')}
        description={t('Empty: the one that finds the directory')}
        found={(plugins.data?.items ?? []).map((p) => p.name)}
      />
      {(details?.plugin?.parameters ?? []).map((p) =>
        p.collectionType === 'string' ? (
          <TextInput
            key={p.name}
            label={p.title || p.name}
            description={p.tooltip}
            required={p.required ?? false}
            placeholder={p.string}
            value={written(p.name)}
            onChange={(e) => change(p.name, e.currentTarget.value)}
          />
        ) : (
          <p key={p.name} className="quiet">
            {t('{{name}} is a list or a map: set it in the YAML, under plugin.parameters.', {
              name: p.title || p.name,
            })}
          </p>
        ),
      )}
      <LinesField
        form={form}
        path={[...path, 'plugin', 'env']}
        label={t('Environment')}
        description={t('NAME=value, one on each line')}
        show={pairLines.show}
        parse={pairLines.parse}
        rows={2}
      />
    </>
  );
}
