import { Alert, Badge, Drawer, Group, Stack, Text, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Node, ResourceAction } from '../../api/client';
import { needed } from '../../api/session';
import { ActionButton } from '../../ui/action-button';
import { HealthBadge } from '../../ui/badges';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type AppKey, appMutations, appQueries } from './api';

/** What one can do with a live object of an application. */
export function ObjectActions(props: { appKey: AppKey; project: string; node: Node; close: () => void }) {
  const { appKey, project, node, close } = props;
  const actions = useQuery(appQueries.actions(appKey, node));
  return (
    <Drawer opened onClose={close} position="right" title={`${node.kind} ${node.name}`}>
      <Stack>
        <Group gap="xs">
          {node.namespace && <Badge variant="light">{node.namespace}</Badge>}
          {node.health && <HealthBadge status={node.health} cause={node.message} />}
        </Group>
        {node.message && <Text size="sm">{node.message}</Text>}
        <Screen
          query={actions}
          empty={(a) => (a.items.length === 0 ? <Nothing title="This object offers no actions." /> : undefined)}
        >
          {(a) => (
            <Stack gap="xs" role="list" aria-label="Actions">
              {a.items.map((action) => (
                <Offer key={action.name} appKey={appKey} project={project} node={node} action={action} />
              ))}
            </Stack>
          )}
        </Screen>
      </Stack>
    </Drawer>
  );
}

/** The reason why an action on an object cannot be run, or nothing. */
export function hindrance(action: ResourceAction, node: Node, project: string): string {
  if (!action.permitted) return needed('applications', `action/${node.group}/${node.kind}/${action.name}`, project);
  if (action.disabled) return 'Not possible as the object is now.';
  return '';
}

function Offer(props: { appKey: AppKey; project: string; node: Node; action: ResourceAction }) {
  const { appKey, project, node, action } = props;
  const run = useMutation(appMutations.act(appKey, node));
  const fields = action.params ?? [];
  const [values, setValues] = useState(
    Object.fromEntries(fields.map((p) => [p.name, p.value || p.default || ''])) as Record<string, string>,
  );
  const why = hindrance(action, node, project);
  const title = action.displayName || action.name;
  const start = () =>
    run.mutate(
      { action: action.name, values },
      {
        onSuccess: (result) =>
          notifications.show({
            color: 'teal',
            title: `${title} is done`,
            message: result.changes.map((c) => `${c.created ? 'Created' : 'Changed'} ${c.kind} ${c.name}`).join(', '),
          }),
      },
    );
  return (
    <Stack gap={4} role="listitem">
      <Group align="flex-end" gap="xs">
        {fields.map((p) => (
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
          disabled={action.disabled}
          loading={run.isPending}
          onClick={start}
        >
          {title}
        </ActionButton>
      </Group>
      {why && (
        <Text size="xs" c="dimmed">
          {why}
        </Text>
      )}
      {run.error && (
        <Alert color="red" p="xs">
          <Problem error={run.error} />
        </Alert>
      )}
    </Stack>
  );
}
