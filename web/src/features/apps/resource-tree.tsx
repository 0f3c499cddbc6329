import { ActionIcon, Anchor, Group, Paper, Switch, Text, useMantineColorScheme } from '@mantine/core';
import { IconDots } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import {
  Background,
  Controls,
  type Edge,
  type Node as FlowNode,
  Handle,
  type NodeProps,
  Position,
  ReactFlow,
} from '@xyflow/react';
import { createContext, useContext, useMemo, useState } from 'react';
import type { Node } from '../../api/client';
import { cell, layout } from '../../graph/layout';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import { type AppKey, treeQuery } from './api';
import { NodeLinks } from './links';
import { isChildApplication, nodeId } from './model';
import { ObjectActions } from './object-actions';

type Drawn = FlowNode<{ node: Node; root: boolean }, 'object'>;

/** Opens what one can do with an object. */
const Open = createContext<(node: Node) => void>(() => {});

function ObjectNode({ data }: NodeProps<Drawn>) {
  const { node, root } = data;
  const open = useContext(Open);
  const where = node.namespace ? `${node.namespace}/${node.name}` : node.name;
  return (
    <Paper
      withBorder
      shadow="xs"
      p={6}
      w={cell.width}
      title={[`${node.kind} ${where}`, node.message, node.diff].filter(Boolean).join('\n')}
    >
      {!root && <Handle type="target" position={Position.Left} isConnectable={false} />}
      <Text size="xs" c="dimmed" truncate>
        {node.kind}
        {node.syncWave ? ` · wave ${node.syncWave}` : ''}
        {node.requiresPruning ? ' · to be pruned' : ''}
        {node.orphaned ? ' · orphaned' : ''}
        {node.info?.map((i) => ` · ${i.value}`).join('')}
      </Text>
      <Group justify="space-between" wrap="nowrap" gap={4}>
        <Text size="sm" fw={600} truncate>
          {!root && isChildApplication(node) ? (
            <Anchor
              className="nodrag nopan"
              renderRoot={(props) => (
                <Link
                  to="/applications/$namespace/$name"
                  params={{ namespace: node.namespace ?? 'argocd', name: node.name }}
                  {...props}
                />
              )}
            >
              {node.name}
            </Anchor>
          ) : (
            node.name
          )}
        </Text>
        {!root && !node.orphaned && (
          <ActionIcon
            className="nodrag nopan"
            size="xs"
            variant="subtle"
            color="gray"
            aria-label={`Actions of ${node.kind} ${where}`}
            onClick={() => open(node)}
          >
            <IconDots size={14} aria-hidden />
          </ActionIcon>
        )}
      </Group>
      <Group gap={4}>
        {node.health && <HealthBadge status={node.health} cause={node.message} />}
        {node.managed && node.status && <DriftBadge status={node.status} />}
        <NodeLinks node={node} />
      </Group>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </Paper>
  );
}

const nodeTypes = { object: ObjectNode };

/** The live objects of an application, owners left of what they own. */
export default function ResourceTree({ appKey, name }: { appKey: AppKey; name: string }) {
  const tree = useQuery(treeQuery(appKey));
  const [shown, show] = useState<Node>();
  const [orphans, setOrphans] = useState(false);
  return (
    <Open value={show}>
      <Screen
        query={tree}
        empty={(t) =>
          t.nodes.length === 0 ? <Nothing title="The cluster holds nothing of this application." /> : undefined
        }
      >
        {(t) => {
          const count = t.nodes.filter((n) => n.orphaned).length;
          return (
            <>
              {count > 0 && (
                <Switch
                  mb="xs"
                  size="xs"
                  label={`Show orphaned (${count})`}
                  checked={orphans}
                  onChange={(e) => setOrphans(e.currentTarget.checked)}
                />
              )}
              <Graph nodes={orphans ? t.nodes : t.nodes.filter((n) => !n.orphaned)} name={name} />
            </>
          );
        }}
      </Screen>
      {shown && <ObjectActions appKey={appKey} node={shown} close={() => show(undefined)} />}
    </Open>
  );
}

function Graph({ nodes, name }: { nodes: Node[]; name: string }) {
  const { colorScheme } = useMantineColorScheme();
  const drawn = useMemo(() => {
    const root: Node = { group: 'argoproj.io', version: 'v1alpha1', kind: 'Application', name, managed: false };
    const placed = layout(`application ${name}`, root, nodes, nodeId, (n) => n.parent);
    const boxes: Drawn[] = placed.map((p) => ({
      id: p.id,
      type: 'object',
      position: { x: p.x, y: p.y },
      data: { node: p.data, root: p.parent === '' },
      ariaLabel: `${p.data.kind} ${p.data.name}, ${p.data.health ?? 'no health rule'}`,
    }));
    const edges: Edge[] = placed
      .filter((p) => p.parent)
      .map((p) => ({ id: `${p.parent}>${p.id}`, source: p.parent, target: p.id }));
    return { boxes, edges };
  }, [nodes, name]);
  return (
    <section className="tree" aria-label="Resource tree">
      <ReactFlow
        key={drawn.boxes.length}
        nodes={drawn.boxes}
        edges={drawn.edges}
        nodeTypes={nodeTypes}
        colorMode={colorScheme === 'auto' ? 'system' : colorScheme}
        nodesDraggable={false}
        nodesConnectable={false}
        onlyRenderVisibleElements
        fitView
        fitViewOptions={{ maxZoom: 1 }}
        minZoom={0.05}
      >
        <Background />
        <Controls showInteractive={false} />
      </ReactFlow>
    </section>
  );
}
