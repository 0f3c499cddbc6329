import { ActionIcon, Anchor, Group, Paper, Text, UnstyledButton, useMantineColorScheme } from '@mantine/core';
import { IconChevronDown, IconChevronRight, IconDots } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import {
  Background,
  Controls,
  type Edge,
  type Node as FlowNode,
  Handle,
  MiniMap,
  type NodeProps,
  Position,
  ReactFlow,
} from '@xyflow/react';
import { createContext, useContext, useMemo, useState } from 'react';
import type { Node } from '../../api/client';
import { cell, layout } from '../../graph/layout';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { type Facets, grouped, type Item } from './grouping';
import { NodeLinks } from './links';
import { isChildApplication, nodeId } from './model';

type Box = FlowNode<{ node: Node; root: boolean; below: number; collapsed: boolean }, 'object'>;
type GroupBox = FlowNode<{ item: Item & { group: object } }, 'siblings'>;
type Drawn = Box | GroupBox;

interface Acts {
  /** Shows what one can do with an object. */
  open: (node: Node) => void;
  /** What is shown is not current. */
  stale: boolean;
  /** Opens or closes a group. */
  toggle: (id: string) => void;
  /** Hides or shows what an object owns. */
  collapse: (id: string) => void;
}

const Act = createContext<Acts>({ open: () => {}, stale: false, toggle: () => {}, collapse: () => {} });

function ObjectNode({ data }: NodeProps<Box>) {
  const { node, root, below, collapsed } = data;
  const { open, stale, collapse } = useContext(Act);
  const where = node.namespace ? `${node.namespace}/${node.name}` : node.name;
  const label = `${node.kind} ${where}, ${node.health ?? 'no health rule'}`;
  const opens = !root && !node.orphaned;
  return (
    <Paper
      withBorder
      shadow="xs"
      p={6}
      w={cell.width}
      className="box"
      data-problem={node.health === 'Degraded' || node.health === 'Missing'}
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
        {!root && isChildApplication(node) ? (
          <>
            <Anchor
              className="nodrag nopan name"
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
          </>
        ) : opens ? (
          <UnstyledButton className="nodrag nopan name" aria-label={label} onClick={() => open(node)}>
            {node.name}
          </UnstyledButton>
        ) : (
          <Text size="sm" fw={600} truncate>
            {node.name}
          </Text>
        )}
      </Group>
      <Group gap={4}>
        {node.health && <HealthBadge status={node.health} cause={node.message} stale={stale} />}
        {node.managed && node.status && <DriftBadge status={node.status} stale={stale} />}
        <NodeLinks node={node} />
        {!root && below > 0 && (
          <UnstyledButton
            className="nodrag nopan name collapse"
            aria-expanded={!collapsed}
            aria-label={`${below} objects below ${node.kind} ${where}`}
            onClick={(e) => {
              e.stopPropagation();
              collapse(nodeId(node));
            }}
          >
            {collapsed ? <IconChevronRight size={12} aria-hidden /> : <IconChevronDown size={12} aria-hidden />} {below}
          </UnstyledButton>
        )}
      </Group>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </Paper>
  );
}

function GroupNode({ data }: NodeProps<GroupBox>) {
  const { toggle } = useContext(Act);
  const { id, group } = data.item;
  const g = group as NonNullable<Item['group']>;
  const states = g.states.map(([state, n]) => `${n} ${state}`).join(', ');
  return (
    <Paper withBorder p={6} w={cell.width} className="box group">
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <UnstyledButton
        className="nodrag nopan name"
        aria-expanded={g.open}
        aria-label={`${g.count} objects of kind ${g.kind}: ${states}`}
        onClick={() => toggle(id)}
      >
        {g.open ? <IconChevronDown size={14} aria-hidden /> : <IconChevronRight size={14} aria-hidden />} {g.count} ×{' '}
        {g.kind}
      </UnstyledButton>
      <Text size="xs" c="dimmed" truncate title={states}>
        {states}
      </Text>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </Paper>
  );
}

const nodeTypes = { object: ObjectNode, siblings: GroupNode };

/** A set with an id added, or taken out where it is in. */
function toggled(set: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(id)) next.add(id);
  return next;
}

/** Above so many boxes a small map helps to find one's way. */
const mapAbove = 60;

/**
 * Objects as a graph, owners left of what they own. It begins at its top left in
 * its own size; where one has moved it stays.
 */
export default function ResourceTree({
  nodes,
  name,
  find,
  problems,
  facets,
  flat,
  stale,
  open,
}: {
  nodes: Node[];
  name: string;
  find: string;
  problems: boolean;
  facets: Facets;
  /** Draws all siblings one by one. */
  flat: boolean;
  stale: boolean;
  open: (node: Node) => void;
}) {
  const { colorScheme } = useMantineColorScheme();
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const acts = useMemo<Acts>(
    () => ({
      open,
      stale,
      toggle: (id) => setOpened((held) => toggled(held, id)),
      collapse: (id) => setCollapsed((held) => toggled(held, id)),
    }),
    [open, stale],
  );
  const drawn = useMemo(() => {
    const rootId = `application ${name}`;
    const node: Node = { group: 'argoproj.io', version: 'v1alpha1', kind: 'Application', name, managed: false };
    const root: Item = { id: rootId, parent: undefined, node };
    const items = grouped(nodes, { find, problems, facets, flat, open: opened, collapsed });
    const placed = layout(
      rootId,
      root,
      items,
      (i) => i.id,
      (i) => i.parent,
    );
    const size = { width: cell.width, height: cell.height - 10 };
    const boxes = placed.map(
      (p): Drawn =>
        p.data.group
          ? {
              id: p.id,
              type: 'siblings',
              position: p,
              data: { item: p.data },
              initialWidth: size.width,
              initialHeight: size.height,
            }
          : {
              id: p.id,
              type: 'object',
              position: p,
              data: {
                node: p.data.node,
                root: p.parent === '',
                below: p.data.children ?? 0,
                collapsed: p.data.collapsed ?? false,
              },
              initialWidth: size.width,
              initialHeight: size.height,
            },
    );
    const edges: Edge[] = placed
      .filter((p) => p.parent)
      .map((p) => ({
        id: `${p.parent}>${p.id}`,
        source: p.parent,
        target: p.id,
        type: 'smoothstep',
        focusable: false,
      }));
    return { boxes, edges };
  }, [nodes, name, find, problems, facets, flat, opened, collapsed]);
  return (
    <Act value={acts}>
      <section className="tree" aria-label="Resource tree">
        <ReactFlow
          nodes={drawn.boxes}
          edges={drawn.edges}
          nodeTypes={nodeTypes}
          colorMode={colorScheme === 'auto' ? 'system' : colorScheme}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          disableKeyboardA11y
          panOnScroll
          onlyRenderVisibleElements
          onNodeClick={(_, box) => {
            if (box.type === 'siblings') return;
            const { node, root } = box.data;
            if (!root && !node.orphaned && !isChildApplication(node)) open(node);
          }}
          defaultViewport={{ x: 16, y: 16, zoom: 1 }}
          minZoom={0.2}
          maxZoom={1.5}
          proOptions={{ hideAttribution: true }}
        >
          <Background />
          <Controls showInteractive={false} showFitView={drawn.boxes.length <= mapAbove} />
          {drawn.boxes.length > mapAbove && <MiniMap pannable zoomable ariaLabel="Map of the tree" />}
        </ReactFlow>
      </section>
    </Act>
  );
}
