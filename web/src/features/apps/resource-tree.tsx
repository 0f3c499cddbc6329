import { ActionIcon, Anchor, Paper, Text, UnstyledButton, useMantineColorScheme } from '@mantine/core';
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
  type ReactFlowInstance,
} from '@xyflow/react';
import {
  createContext,
  type KeyboardEvent,
  type RefObject,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from 'react';
import type { Node } from '../../api/client';
import { cell, layout } from '../../graph/layout';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { type Facets, grouped, type Item, stateWord } from './grouping';
import { NodeLinks } from './links';
import { isChildApplication, nodeId } from './model';
import { shownInfo } from './network';
import './tree.css';
import { t } from '../../texts';
import { moveOf, type Stop } from './tree-keys';

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
  /** The object whose panel is open. */
  selected: string;
  /** What the keyboard went to last; another object each time. */
  focus: { id: string };
}

/** Height of a box, in pixels; the rest of its cell stays free. */
const boxHeight = cell.height - 12;
/** In pixels: Mantine's sizes are relative to the size of text. */
const boxSize = { width: cell.width, height: boxHeight };

const Act = createContext<Acts>({
  open: () => {},
  stale: false,
  toggle: () => {},
  collapse: () => {},
  selected: '',
  focus: { id: '' },
});

/** Gives a box the focus when the keyboard goes to it, also if it is drawn only then. */
function useKeyboardFocus(id: string): RefObject<HTMLDivElement | null> {
  const { focus } = useContext(Act);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (focus.id === id) box.current?.querySelector<HTMLElement>('button, a')?.focus({ preventScroll: true });
  }, [focus, id]);
  return box;
}

function ObjectNode({ data }: NodeProps<Box>) {
  const { node, root, below, collapsed } = data;
  const { open, stale, collapse, selected } = useContext(Act);
  const box = useKeyboardFocus(nodeId(node));
  const where = node.namespace ? `${node.namespace}/${node.name}` : node.name;
  const drift = node.managed ? node.status : undefined;
  const states = [node.health ? stateWord(node.health) : t('no health rule'), drift === 'OutOfSync' ? t('drifted') : '']
    .filter(Boolean)
    .join(', ');
  const label = `${node.kind} ${where}, ${states}`;
  const opens = !root && !node.orphaned;
  return (
    <Paper
      ref={box}
      withBorder
      style={boxSize}
      className="box"
      data-problem={node.health === 'Degraded' || node.health === 'Missing'}
      data-drifted={drift === 'OutOfSync'}
      data-selected={selected === nodeId(node)}
      title={[label, node.message, node.diff].filter(Boolean).join('\n')}
    >
      {!root && <Handle type="target" position={Position.Left} isConnectable={false} />}
      <div className="box-line">
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
              aria-label={t('Actions of {{kind}} {{where}}', { kind: node.kind, where })}
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
          <span className="name">{node.name}</span>
        )}
        <span className="box-states">
          {!root && below > 0 && (
            <UnstyledButton
              className="nodrag nopan name collapse"
              aria-expanded={!collapsed}
              aria-label={t('{{below}} objects below {{kind}} {{where}}', { below, kind: node.kind, where })}
              onClick={(e) => {
                e.stopPropagation();
                collapse(nodeId(node));
              }}
            >
              {collapsed ? <IconChevronRight size={12} aria-hidden /> : <IconChevronDown size={12} aria-hidden />}{' '}
              {below}
            </UnstyledButton>
          )}
          <NodeLinks node={node} />
          {drift === 'OutOfSync' && <DriftBadge status={drift} stale={stale} weight="quiet" />}
          {node.health && <HealthBadge status={node.health} cause={node.message} stale={stale} weight="quiet" />}
        </span>
      </div>
      <Text size="xs" c="dimmed" truncate>
        {[
          node.kind,
          node.syncWave ? t('wave {{wave}}', { wave: node.syncWave }) : '',
          node.requiresPruning ? t('to be pruned') : '',
          node.orphaned ? t('orphaned') : '',
          ...shownInfo(node),
        ]
          .filter(Boolean)
          .join(' · ')}
      </Text>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </Paper>
  );
}

function GroupNode({ data }: NodeProps<GroupBox>) {
  const { toggle } = useContext(Act);
  const { id, group } = data.item;
  const box = useKeyboardFocus(id);
  const g = group as NonNullable<Item['group']>;
  const states = g.states.map(([state, n]) => t('{{n}} {{state}}', { n, state: stateWord(state) })).join(', ');
  return (
    <Paper ref={box} withBorder style={boxSize} className="box group">
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <UnstyledButton
        className="nodrag nopan name"
        aria-expanded={g.open}
        aria-label={t('{{count}} × {{kind}} objects: {{states}}', { count: g.count, kind: g.kind, states })}
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

const controlWords = {
  'controls.ariaLabel': t('Control Panel'),
  'controls.zoomIn.ariaLabel': t('Zoom In'),
  'controls.zoomOut.ariaLabel': t('Zoom Out'),
  'controls.fitView.ariaLabel': t('Fit View'),
};

const nodeTypes = { object: ObjectNode, siblings: GroupNode };

/** A set with an id added, or taken out where it is in. */
function toggled(set: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(id)) next.add(id);
  return next;
}

/** What of the boxes the keyboard goes to. The application is the page; orphaned objects have no panel. */
function stopsOf(boxes: Drawn[], parents: ReadonlyMap<string, string>): Stop[] {
  const shown = new Set(parents.values());
  return boxes.flatMap((b) => {
    const stop = { id: b.id, parent: parents.get(b.id) ?? '' };
    if (b.type === 'siblings') return [{ ...stop, open: (b.data.item.group as NonNullable<Item['group']>).open }];
    if (b.data.root || b.data.node.orphaned) return [];
    return [{ ...stop, open: b.data.below > 0 ? !b.data.collapsed && shown.has(b.id) : undefined }];
  });
}

/** Moves the view so that a box is in it; where it is already, nothing moves. */
function bring(flow: ReactFlowInstance<Drawn> | undefined, view: Element, box: Drawn | undefined) {
  if (!flow || !box) return;
  const { x, y, zoom } = flow.getViewport();
  const left = box.position.x * zoom + x;
  const top = box.position.y * zoom + y;
  const inside =
    left >= 0 &&
    top >= 0 &&
    left + boxSize.width * zoom <= view.clientWidth &&
    top + boxSize.height * zoom <= view.clientHeight;
  if (!inside) {
    void flow.setCenter(box.position.x + boxSize.width / 2, box.position.y + boxSize.height / 2, { zoom });
  }
}

/** Above so many boxes a small map helps to find one's way. */
const mapAbove = 100;

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
  selected,
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
  /** The object whose panel is open; empty: none. */
  selected: string;
  open: (node: Node) => void;
}) {
  const { colorScheme } = useMantineColorScheme();
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const [focus, setFocus] = useState({ id: '' });
  const flow = useRef<ReactFlowInstance<Drawn>>(undefined);
  const acts = useMemo<Acts>(
    () => ({
      open,
      stale,
      selected,
      focus,
      toggle: (id) => setOpened((held) => toggled(held, id)),
      collapse: (id) => setCollapsed((held) => toggled(held, id)),
    }),
    [open, stale, selected, focus],
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
    const size = { width: cell.width, height: boxHeight };
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
    // The path from the application to each object with a problem.
    const parents = new Map(placed.map((p) => [p.id, p.parent]));
    const troubled = new Set<string>();
    for (const p of placed) {
      if (p.data.node?.health !== 'Degraded' && p.data.node?.health !== 'Missing') continue;
      for (let at = p.id; at && !troubled.has(at); at = parents.get(at) ?? '') troubled.add(at);
    }
    const edges: Edge[] = placed
      .filter((p) => p.parent)
      .map((p) => ({
        id: `${p.parent}>${p.id}`,
        source: p.parent,
        target: p.id,
        type: 'smoothstep',
        focusable: false,
        ...(troubled.has(p.id) ? { className: 'to-problem', zIndex: 1 } : {}),
      }));
    return { boxes, edges, stops: stopsOf(boxes, parents) };
  }, [nodes, name, find, problems, facets, flat, opened, collapsed]);
  /** Arrows walk the tree; what is outside of the view comes into it. */
  const walk = (e: KeyboardEvent) => {
    const at = e.target instanceof Element ? e.target.closest('.react-flow__node')?.getAttribute('data-id') : undefined;
    if (!at || e.altKey || e.ctrlKey || e.metaKey || e.shiftKey) return;
    const move = moveOf(drawn.stops, at, e.key);
    if (!move) return;
    e.preventDefault();
    if ('toggle' in move) {
      const box = drawn.boxes.find((b) => b.id === move.toggle);
      if (box?.type === 'siblings') acts.toggle(move.toggle);
      else acts.collapse(move.toggle);
      return;
    }
    bring(
      flow.current,
      e.currentTarget,
      drawn.boxes.find((b) => b.id === move.to),
    );
    setFocus({ id: move.to });
  };
  return (
    <Act value={acts}>
      <section
        className="tree"
        aria-label={t('Resource tree')}
        aria-description={t('Arrow keys go from object to object.')}
        onKeyDown={walk}
      >
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
          onInit={(instance) => {
            flow.current = instance;
          }}
          onNodeClick={(_, box) => {
            if (box.type === 'siblings') return;
            const { node, root } = box.data;
            if (!root && !node.orphaned && !isChildApplication(node)) open(node);
          }}
          defaultViewport={{ x: 16, y: 16, zoom: 1 }}
          minZoom={0.2}
          maxZoom={1.5}
          proOptions={{ hideAttribution: true }}
          ariaLabelConfig={controlWords}
        >
          <Background />
          <Controls showInteractive={false} showFitView={drawn.boxes.length <= mapAbove} />
          {drawn.boxes.length > mapAbove && <MiniMap pannable zoomable ariaLabel={t('Map of the tree')} />}
        </ReactFlow>
      </section>
    </Act>
  );
}
