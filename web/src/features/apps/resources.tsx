import { Group, SegmentedControl, Select, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazy, useState } from 'react';
import type { Application, Node } from '../../api/client';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import { defaultPodSort, defaultView, networkNodes, type PodSort, podGroups, type View, views } from './annotations';
import { type AppKey, treeQuery } from './api';
import { NodeLinks } from './links';
import { nodeId } from './model';

// The graph is large; it is loaded when it is looked at.
const Tree = lazy(() => import('./resource-tree'));

const titles: Record<View, string> = { tree: 'Tree', pods: 'Pods', network: 'Network', list: 'List' };

/** The objects of an application, in the view that the address names, or the application's annotation. */
export function Resources({
  appKey,
  app,
  view,
  choose,
}: {
  appKey: AppKey;
  app: Application;
  view: string | undefined;
  choose: (view: View) => void;
}) {
  const shown = views.find((v) => v === view) ?? defaultView(app);
  return (
    <Stack gap="xs">
      <Group>
        <SegmentedControl
          size="xs"
          aria-label="View"
          value={shown}
          data={views.map((v) => ({ value: v, label: titles[v] }))}
          onChange={(v) => choose(views.find((known) => known === v) ?? 'tree')}
        />
      </Group>
      {shown === 'tree' ? (
        <Tree appKey={appKey} name={app.metadata.name} />
      ) : (
        <Tables appKey={appKey} app={app} view={shown} />
      )}
    </Stack>
  );
}

function Tables({ appKey, app, view }: { appKey: AppKey; app: Application; view: View }) {
  const tree = useQuery(treeQuery(appKey));
  const [sort, setSort] = useState<PodSort>(defaultPodSort(app));
  return (
    <Screen query={tree}>
      {(t) => {
        if (view === 'list') return <Objects nodes={t.nodes.filter((n) => n.managed)} label="Objects" />;
        if (view === 'network') return <Objects nodes={networkNodes(t.nodes)} label="Network" />;
        return (
          <Stack gap="xs">
            <Select
              w={240}
              size="xs"
              label="Pods by"
              value={sort}
              allowDeselect={false}
              data={[
                { value: 'topLevelResource', label: 'top object' },
                { value: 'parentResource', label: 'owner' },
                { value: 'node', label: 'node' },
              ]}
              onChange={(v) => setSort(v === 'node' || v === 'parentResource' ? v : 'topLevelResource')}
            />
            <Pods groups={podGroups(t.nodes, sort)} />
          </Stack>
        );
      }}
    </Screen>
  );
}

function Pods({ groups }: { groups: [string, Node[]][] }) {
  if (groups.length === 0) return <Nothing title="The application has no pods." />;
  return groups.map(([name, pods]) => (
    <section key={name} aria-label={name}>
      <Title order={5}>
        {name}{' '}
        <Text span size="sm" c="dimmed">
          {pods.length}
        </Text>
      </Title>
      <Objects nodes={pods} label={`Pods of ${name}`} />
    </section>
  ));
}

function Objects({ nodes, label }: { nodes: Node[]; label: string }) {
  if (nodes.length === 0) return <Nothing title="There is nothing of the kind." />;
  return (
    <Table aria-label={label}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Object</Table.Th>
          <Table.Th>Drift</Table.Th>
          <Table.Th>Health</Table.Th>
          <Table.Th>Wave</Table.Th>
          <Table.Th>About</Table.Th>
          <Table.Th>Links</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {nodes.map((n) => (
          <Table.Tr key={nodeId(n)}>
            <Table.Td>
              {n.kind} {n.namespace ? `${n.namespace}/` : ''}
              {n.name}
              {n.hook ? ' · hook' : ''}
              {n.requiresPruning ? ' · to be pruned' : ''}
              {n.requiresDeletionConfirmation ? ' · deletion needs approval' : ''}
            </Table.Td>
            <Table.Td>{n.managed && n.status && <DriftBadge status={n.status} />}</Table.Td>
            <Table.Td>{n.health && <HealthBadge status={n.health} cause={n.message} />}</Table.Td>
            <Table.Td>{n.syncWave ?? 0}</Table.Td>
            <Table.Td>{n.info?.map((i) => i.value).join(' · ')}</Table.Td>
            <Table.Td>
              <NodeLinks node={n} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
