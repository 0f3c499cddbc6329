import { yaml } from '@codemirror/lang-yaml';
import { MergeView } from '@codemirror/merge';
import { EditorState } from '@codemirror/state';
import { EditorView, lineNumbers } from '@codemirror/view';
import { Badge, Group, Paper, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { stringify } from 'yaml';
import type { ObjectDiff } from '../../api/client';
import { DriftBadge } from '../../ui/badges';
import { Screen } from '../../ui/states';
import { type AppKey, diffQuery } from './api';

/** Live against desired, for each object that differs. */
export default function Diff({ appKey }: { appKey: AppKey }) {
  const diff = useQuery(diffQuery(appKey));
  return (
    <Screen
      query={diff}
      empty={(d) =>
        d.items.length === 0 ? <Text c="dimmed">No differences: the cluster holds what Git says.</Text> : undefined
      }
    >
      {(d) => (
        <Stack>
          {d.items.map((o) => (
            <One key={[o.group, o.kind, o.namespace, o.name].join('/')} object={o} />
          ))}
        </Stack>
      )}
    </Screen>
  );
}

function text(object: unknown): string {
  return object ? stringify(object, { sortMapEntries: true, lineWidth: 0 }) : '';
}

function One({ object }: { object: ObjectDiff }) {
  return (
    <Paper withBorder p="sm">
      <Group mb="xs">
        <Text fw={600}>
          {object.kind} {object.namespace ? `${object.namespace}/` : ''}
          {object.name}
        </Text>
        <DriftBadge status={object.status} />
        {!object.live && <Badge color="yellow">not in the cluster</Badge>}
        {!object.desired && <Badge color="yellow">no longer in Git</Badge>}
      </Group>
      {object.summary && (
        <Text size="sm" mb="xs">
          {object.summary}
        </Text>
      )}
      <Group grow mb={4}>
        <Text size="xs" c="dimmed">
          Live
        </Text>
        <Text size="xs" c="dimmed">
          Desired
        </Text>
      </Group>
      <Merge live={text(object.live)} desired={text(object.desired)} />
    </Paper>
  );
}

function Merge({ live, desired }: { live: string; desired: string }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!host.current) return;
    const extensions = [
      lineNumbers(),
      yaml(),
      EditorView.lineWrapping,
      EditorView.editable.of(false),
      EditorState.readOnly.of(true),
    ];
    const view = new MergeView({
      a: { doc: live, extensions },
      b: { doc: desired, extensions },
      parent: host.current,
      collapseUnchanged: { margin: 3, minSize: 6 },
    });
    return () => view.destroy();
  }, [live, desired]);
  return <div ref={host} data-testid="diff" />;
}
