import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { MergeView } from '@codemirror/merge';
import { EditorState } from '@codemirror/state';
import { EditorView, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { Badge, Group, Paper, SegmentedControl, Stack, Switch, Text, useComputedColorScheme } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { stringify } from 'yaml';
import type { Application, ObjectDiff } from '../../api/client';
import { sentence } from '../../api/errors';
import { shortRevision } from '../../format/format';
import { DriftBadge } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import { type AppKey, appQueries } from './api';

/** Live against desired, for each object that differs. */
export default function Diff({ appKey, app }: { appKey: AppKey; app: Application }) {
  const diff = useQuery(appQueries.diff(appKey));
  return (
    <Screen query={diff} empty={(d) => (d.items.length === 0 ? <Equal app={app} /> : undefined)}>
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

/** What is said where nothing differs: of Git only if it is Git that was compared. */
function Equal({ app }: { app: Application }) {
  const paused = app.status?.capstan?.paused;
  if (paused) {
    return (
      <Nothing
        title={`The cluster equals revision ${shortRevision(paused.revision)}, at which the application is paused.`}
      >
        {sentence(paused.message)}
        {app.status?.sync?.status === 'OutOfSync' && ' Git asks for something else.'}
      </Nothing>
    );
  }
  if (app.status?.sync?.status === 'Unknown') {
    return (
      <Nothing title="Nothing differs from what was rendered last.">
        It cannot be compared with Git now: {app.status.capstan?.stale?.message}.
      </Nothing>
    );
  }
  return <Nothing title="No differences: the cluster holds what Git says." />;
}

function text(object: unknown): string {
  return object ? stringify(object, { sortMapEntries: true, lineWidth: 0 }) : '';
}

function One({ object }: { object: ObjectDiff }) {
  const [side, setSide] = useState<'live' | 'applied'>('live');
  const [whole, setWhole] = useState(false);
  return (
    <Paper withBorder p="sm">
      <Group mb="xs">
        <Text fw={600}>
          {object.kind} {object.namespace ? `${object.namespace}/` : ''}
          {object.name}
        </Text>
        <DriftBadge status={object.status} />
        {!object.live && (
          <Badge variant="light" color="yellow">
            not in the cluster
          </Badge>
        )}
        {!object.desired && (
          <Badge variant="light" color="yellow">
            no longer in Git
          </Badge>
        )}
      </Group>
      {object.summary && (
        <Text size="sm" mb="xs">
          {object.summary}
        </Text>
      )}
      <Group mb="xs">
        <SegmentedControl
          size="xs"
          aria-label="Compare Git with"
          value={side}
          onChange={(v) => setSide(v === 'applied' ? 'applied' : 'live')}
          data={[
            { value: 'live', label: 'Live' },
            { value: 'applied', label: 'Last applied', disabled: !object.applied },
          ]}
        />
        {side === 'live' && object.live && (
          <Switch
            size="xs"
            label="Also what Git says nothing about"
            checked={whole}
            onChange={(e) => setWhole(e.currentTarget.checked)}
          />
        )}
      </Group>
      <Group grow mb={4}>
        <Text size="xs" c="dimmed">
          {side === 'applied' ? 'Last applied' : 'Live'}
        </Text>
        <Text size="xs" c="dimmed">
          Desired
        </Text>
      </Group>
      <Merge
        live={text(side === 'applied' ? object.applied : whole ? object.live : (object.normalizedLive ?? object.live))}
        desired={text(object.desired)}
      />
    </Paper>
  );
}

const colours = {
  '&': { fontSize: '12.5px', backgroundColor: 'var(--mantine-color-body)', color: 'var(--mantine-color-text)' },
  '.cm-gutters': {
    backgroundColor: 'var(--mantine-color-default)',
    color: 'var(--mantine-color-dimmed)',
    borderRight: '1px solid var(--line)',
  },
  '.cm-collapsedLines': {
    background: 'var(--mantine-color-default-hover)',
    color: 'var(--mantine-color-text)',
  },
};
const onLight = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: '#1864ab' },
  { tag: [tags.string, tags.content], color: '#212529' },
  { tag: [tags.number, tags.bool, tags.null], color: '#862e9c' },
]);
const onDark = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: '#a5d8ff' },
  { tag: [tags.string, tags.content], color: '#f1f3f5' },
  { tag: [tags.number, tags.bool, tags.null], color: '#eebefa' },
]);

function Merge({ live, desired }: { live: string; desired: string }) {
  const host = useRef<HTMLDivElement>(null);
  const dark = useComputedColorScheme('light') === 'dark';
  useEffect(() => {
    if (!host.current) return;
    // In a shadow root the editor uses constructed style sheets, which the
    // content security policy allows; in the page it would add style elements.
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const extensions = (name: string) => [
      lineNumbers(),
      yaml(),
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ 'aria-label': name }),
      EditorView.editable.of(false),
      EditorView.theme(colours, { dark }),
      syntaxHighlighting(dark ? onDark : onLight),
      EditorState.readOnly.of(true),
    ];
    const view = new MergeView({
      a: { doc: live, extensions: extensions('Live') },
      b: { doc: desired, extensions: extensions('Desired') },
      root,
      parent: root,
      collapseUnchanged: { margin: 3, minSize: 6 },
    });
    return () => view.destroy();
  }, [live, desired, dark]);
  return <div ref={host} data-testid="diff" />;
}
