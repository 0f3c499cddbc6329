import { Button, Group, SegmentedControl, Switch, Textarea } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { parse, stringify } from 'yaml';
import type { Application, Node } from '../../../api/client';
import { useDenied } from '../../../api/session';
import { t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Nothing, Problem, Screen } from '../../../ui/states';
import { type AppKey, appMutations, appQueries } from '../api';
import { ComparisonView } from '../diff/comparison';
import { projectOf } from '../model';
import { mergePatch } from './patch';
import { at, fields } from './read';
import { YamlText } from './yaml-text';

const forms = ['live', 'desired', 'diff'] as const;
type Form = (typeof forms)[number];

/** The YAML of an object; without what the API server notes about managers, unless that is wanted. */
export function yamlOf(object: unknown, managed: boolean): string {
  if (object === undefined || object === null) return '';
  const all = fields(object);
  const { managedFields: _, ...metadata } = fields(at(all, 'metadata'));
  return stringify(managed ? all : { ...all, ...(all['metadata'] ? { metadata } : {}) }, {
    lineWidth: 0,
    aliasDuplicateObjects: false,
  });
}

/** An object as YAML: as it is, as Git wants it, and what differs. */
export default function ObjectYaml({ appKey, app, node }: { appKey: AppKey; app: Application; node: Node }) {
  const [form, setForm] = useState<Form>('live');
  const [managed, setManaged] = useState(false);
  const [editing, setEditing] = useState(false);
  const live = useQuery(appQueries.live(appKey, node));
  const denied = useDenied('applications', 'update', projectOf(app));
  if (editing && live.data !== undefined) {
    return <Edit appKey={appKey} node={node} live={live.data} close={() => setEditing(false)} />;
  }
  return (
    <div className="object-yaml">
      <Group gap="sm" className="object-tools">
        <SegmentedControl
          size="xs"
          aria-label={t('Form of the object')}
          value={form}
          onChange={(v) => setForm(forms.find((f) => f === v) ?? 'live')}
          data={[
            { value: 'live', label: t('Live') },
            { value: 'desired', label: t('Desired'), disabled: !node.managed },
            { value: 'diff', label: t('Diff'), disabled: !node.managed },
          ]}
        />
        {form === 'live' && (
          <>
            <Switch
              size="xs"
              label={t('Managed fields')}
              checked={managed}
              onChange={(e) => setManaged(e.currentTarget.checked)}
            />
            <ActionButton size="xs" variant="default" why={denied} onClick={() => setEditing(true)}>
              {t('Edit')}
            </ActionButton>
          </>
        )}
      </Group>
      {form === 'live' ? (
        <Screen query={live}>{(o) => <YamlText text={yamlOf(o, managed)} name={t('Live YAML')} />}</Screen>
      ) : (
        <Desired appKey={appKey} node={node} form={form} />
      )}
    </div>
  );
}

function Desired({ appKey, node, form }: { appKey: AppKey; node: Node; form: Form }) {
  const diff = useQuery(appQueries.objectDiff(appKey, node));
  return (
    <Screen query={diff}>
      {(d) => {
        if (!d) return <Nothing title={t('Git does not describe this object.')} />;
        if (form === 'desired') {
          return d.desired ? (
            <YamlText text={yamlOf(d.desired, false)} name={t('Desired YAML')} />
          ) : (
            <Nothing title={t('The object is no longer in Git.')} />
          );
        }
        return (
          <ComparisonView
            left={yamlOf(d.normalizedLive ?? d.live, false)}
            right={yamlOf(d.desired, false)}
            mode="unified"
          />
        );
      }}
    </Screen>
  );
}

/** What a text asks to be changed, or why it cannot be read. */
export function readEdit(live: unknown, text: string): { patch: string; problem: string } {
  try {
    const edited: unknown = parse(text);
    if (Object.keys(fields(edited)).length === 0) return { patch: '', problem: t('The text is no object.') };
    const shown: unknown = parse(yamlOf(live, false));
    const patch = mergePatch(shown, edited);
    return patch === undefined
      ? { patch: '', problem: t('Nothing is changed yet.') }
      : { patch: JSON.stringify(patch), problem: '' };
  } catch (error) {
    const why = error instanceof Error ? error.message.split('\n')[0] : undefined;
    return {
      patch: '',
      problem:
        why === undefined ? t('The text is no YAML: it cannot be read') : t('The text is no YAML: {{why}}', { why }),
    };
  }
}

/** Edits a live object: first the API server says what becomes of it, and then it is changed. */
function Edit({ appKey, node, live, close }: { appKey: AppKey; node: Node; live: unknown; close: () => void }) {
  const before = yamlOf(live, false);
  const [text, setText] = useState(before);
  const dry = useMutation(appMutations.patch(appKey, node));
  const write = useMutation(appMutations.patch(appKey, node));
  const edit = readEdit(live, text);
  const checked = dry.data !== undefined && dry.variables?.patch === edit.patch;
  return (
    <div className="object-yaml">
      <p className="quiet object-note">
        {t(
          'The change is made in the cluster, not in Git: self-heal or the next sync may undo it. Masked values stay as they are.',
        )}
      </p>
      {(dry.error || write.error) && <Problem error={write.error ?? dry.error} />}
      {checked ? (
        <section aria-label={t('What the API server makes of it')}>
          <ComparisonView left={before} right={yamlOf(dry.data, false)} mode="unified" />
        </section>
      ) : (
        <Textarea
          aria-label={t('YAML of {{kind}} {{name}}', { kind: node.kind, name: node.name })}
          classNames={{ input: 'yaml-edit' }}
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
          autosize
          minRows={16}
          maxRows={40}
          spellCheck={false}
        />
      )}
      <Group gap="xs" className="object-foot">
        <span className="quiet" role="status">
          {checked ? t('The API server accepts the change.') : edit.problem}
        </span>
        <Button variant="default" onClick={checked ? () => dry.reset() : close}>
          {checked ? t('Back to the text') : t('Cancel')}
        </Button>
        {checked ? (
          <Button
            loading={write.isPending}
            onClick={() => write.mutate({ patch: edit.patch, dryRun: false }, { onSuccess: close })}
          >
            {t('Apply the change')}
          </Button>
        ) : (
          <ActionButton
            why={edit.problem}
            loading={dry.isPending}
            onClick={() => dry.mutate({ patch: edit.patch, dryRun: true })}
          >
            {t('Check by dry run')}
          </ActionButton>
        )}
      </Group>
    </div>
  );
}
