import { Alert, Button, Checkbox, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Application, Node, ResourceAction } from '../../../api/client';
import { needed, useDenied } from '../../../api/session';
import { t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Nothing, Problem, Screen } from '../../../ui/states';
import { type AppKey, appMutations, appQueries } from '../api';
import { projectOf } from '../model';

interface Props {
  appKey: AppKey;
  app: Application;
  node: Node;
}

/** What one can do with a live object of an application. */
export function ObjectActions({ appKey, app, node }: Props) {
  const actions = useQuery(appQueries.actions(appKey, node));
  return (
    <Stack className="object-section" gap="md">
      <Screen
        query={actions}
        empty={(a) =>
          a.items.length === 0 ? <Nothing title={t('No actions are available for this resource.')} /> : undefined
        }
      >
        {(a) => (
          <Stack gap="xs" role="list" aria-label={t('Actions')}>
            {a.items.map((action) => (
              <Offer key={action.name} appKey={appKey} project={projectOf(app)} node={node} action={action} />
            ))}
          </Stack>
        )}
      </Screen>
      <Delete appKey={appKey} app={app} node={node} />
    </Stack>
  );
}

/** The reason why an action on an object cannot be run, or nothing. */
export function hindrance(action: ResourceAction, node: Node, project: string): string {
  if (!action.permitted) return needed('applications', `action/${node.group}/${node.kind}/${action.name}`, project);
  if (action.disabled) return t("Not available in the object's current state.");
  return '';
}

const effects: Readonly<Record<string, string>> = {
  restart: t('Its pods are replaced one after the other, as its update strategy says.'),
  pause: t('Changes of its template start no rollout until it is resumed.'),
  resume: t('Changes that wait are rolled out.'),
  suspend: t('It starts no new runs until it is resumed.'),
  'create-job': t('A Job is created from its template and runs now.'),
  terminate: t('What runs now is ended.'),
};

/** What running an action changes, as a sentence to confirm. */
export function effectOf(action: ResourceAction, node: Node, values: Readonly<Record<string, string>>): string {
  const set = Object.entries(values).filter(([, v]) => v !== '');
  const title = action.displayName || action.name;
  const chosen = set.map(([k, v]) => `${k} ${v}`).join(', ');
  const what = chosen ? t('{{action}} with {{values}}', { action: title, values: chosen }) : title;
  return [t('{{action}}: {{object}}.', { action: what, object: placed(node) }), effects[action.name]]
    .filter(Boolean)
    .join(' ');
}

/** What an object is called, with its namespace. */
function placed(node: Node): string {
  const object = `${node.kind} ${node.name}`;
  return node.namespace ? t('{{object}} in {{namespace}}', { object, namespace: node.namespace }) : object;
}

function Offer(props: { appKey: AppKey; project: string; node: Node; action: ResourceAction }) {
  const { appKey, project, node, action } = props;
  const run = useMutation(appMutations.act(appKey, node));
  const [asking, setAsking] = useState(false);
  const params = action.params ?? [];
  const [values, setValues] = useState(
    Object.fromEntries(params.map((p) => [p.name, p.value || p.default || ''])) as Record<string, string>,
  );
  const why = hindrance(action, node, project);
  const title = action.displayName || action.name;
  const start = () =>
    run.mutate(
      { action: action.name, values },
      {
        onSuccess: (result) => {
          setAsking(false);
          notifications.show({
            color: 'teal',
            title: t('{{title}} is done', { title }),
            message: result.changes
              .map((c) => {
                const object = `${c.kind} ${c.name}`;
                return c.created ? t('Created {{object}}', { object }) : t('Changed {{object}}', { object });
              })
              .join(', '),
          });
        },
      },
    );
  return (
    <Stack gap={4} role="listitem">
      <Group align="flex-end" gap="xs">
        {params.map((p) => (
          <TextInput
            key={p.name}
            label={p.name}
            size="xs"
            value={values[p.name] ?? ''}
            disabled={why !== ''}
            onChange={(e) => {
              const { value } = e.currentTarget;
              setValues((all) => ({ ...all, [p.name]: value }));
            }}
          />
        ))}
        <ActionButton
          size="xs"
          variant="light"
          why={action.permitted ? '' : why}
          disabled={action.disabled || asking}
          onClick={() => setAsking(true)}
        >
          {title}
        </ActionButton>
      </Group>
      {why && (
        <Text size="xs" c="dimmed">
          {why}
        </Text>
      )}
      {asking && (
        <Confirm
          question={effectOf(action, node, values)}
          verb={t('Run {{action}}', { action: title })}
          running={run.isPending}
          go={start}
          cancel={() => setAsking(false)}
        />
      )}
      {run.error && (
        <Alert color="red" p="xs">
          <Problem error={run.error} />
        </Alert>
      )}
    </Stack>
  );
}

/** Asks once more, in place, and says what changes. */
function Confirm(props: { question: string; verb: string; running: boolean; go: () => void; cancel: () => void }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset has a look of its own
    <div className="confirm" role="group" aria-label={t('Confirm')}>
      <Text size="sm">{props.question}</Text>
      <Group gap="xs" mt="xs">
        <Button size="xs" variant="default" onClick={props.cancel} data-autofocus>
          {t('Cancel')}
        </Button>
        <Button size="xs" variant="light" color="red" loading={props.running} onClick={props.go}>
          {props.verb}
        </Button>
      </Group>
    </div>
  );
}

const propagations = [
  { value: 'foreground', label: t('What it owns first, then it') },
  { value: 'background', label: t('It first, then what it owns') },
  { value: 'orphan', label: t('It alone; what it owns stays') },
] as const;

function Delete({ appKey, app, node }: Props) {
  const denied = useDenied('applications', 'delete', projectOf(app));
  const tree = useQuery(appQueries.tree(appKey));
  const remove = useMutation(appMutations.remove(appKey, node));
  const [asking, setAsking] = useState(false);
  const [how, setHow] = useState<(typeof propagations)[number]['value']>('foreground');
  const [force, setForce] = useState(false);
  const owned = tree.data?.nodes.filter((n) => n.parent && n.parent === node.uid).length ?? 0;
  const question = [
    t('Deletes {{object}}.', { object: placed(node) }),
    owned > 0 && how !== 'orphan' ? t('{{n}} objects that it owns go with it.', { n: owned }) : '',
    node.managed ? t('Git still has it: self-heal or the next sync creates it again.') : '',
  ];
  return (
    <section aria-label={t('Delete the object')} className="delete">
      <h4>{t('Delete')}</h4>
      <Group align="flex-end" gap="xs">
        <Select
          size="xs"
          label={t('Order')}
          allowDeselect={false}
          data={[...propagations]}
          value={how}
          onChange={(v) => setHow(propagations.find((p) => p.value === v)?.value ?? 'foreground')}
        />
        <Checkbox
          size="xs"
          label={t('Skip graceful termination')}
          checked={force}
          onChange={(e) => setForce(e.currentTarget.checked)}
        />
        <ActionButton
          size="xs"
          variant="light"
          color="red"
          why={denied}
          disabled={asking}
          onClick={() => setAsking(true)}
        >
          {t('Delete')}
        </ActionButton>
      </Group>
      {asking && (
        <Confirm
          question={question.filter(Boolean).join(' ')}
          verb={t('Delete {{kind}}', { kind: node.kind })}
          running={remove.isPending}
          go={() => remove.mutate({ force, propagation: how }, { onSuccess: () => setAsking(false) })}
          cancel={() => setAsking(false)}
        />
      )}
      {remove.error && <Problem error={remove.error} />}
    </section>
  );
}
