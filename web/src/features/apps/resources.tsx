import {
  Badge,
  Group,
  SegmentedControl,
  Select,
  Stack,
  Switch,
  Table,
  Text,
  TextInput,
  Title,
  UnstyledButton,
} from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useVirtualizer } from '@tanstack/react-virtual';
import { createContext, lazy, useContext, useEffect, useRef, useState } from 'react';
import type { Application, Node } from '../../api/client';
import { t } from '../../texts';
import { DriftBadge, HealthBadge } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import {
  defaultPodSort,
  defaultView,
  networkNodes,
  type PodSort,
  podGroups,
  prefersView,
  type View,
  views,
} from './annotations';
import { type AppKey, appQueries } from './api';
import { readResource, writeFacets } from './facet-address';
import { FacetFilter } from './facet-filter';
import { type Facets, isProblem, matching, owners } from './grouping';
import { NodeLinks } from './links';
import { isStale, nodeId } from './model';
import { shownInfo } from './network';
import { NetworkView } from './network-view';
import { nodeOf, parseReference } from './object/reference';
import { type AppSearch, changed } from './search';

// The graph is large; it is loaded when it is looked at.
const Tree = lazy(() => import('./resource-tree'));

const titles: Record<View, string> = {
  tree: t('Tree'),
  pods: t('Pods'),
  network: t('Network'),
  list: t('List'),
};

/** Below this width a tree cannot be read. */
const narrow = '(max-width: 640px)';

/** The objects of an application, in the view that the address names, or the application's annotation. */
export function Resources({
  appKey,
  app,
  search,
  go,
  open,
}: {
  appKey: AppKey;
  app: Application;
  search: AppSearch;
  go: (search: AppSearch) => void;
  /** Shows the panel of an object. */
  open: (node: Node) => void;
}) {
  const tree = useQuery(appQueries.tree(appKey));
  const small = useMediaQuery(narrow, false, { getInitialValueInEffect: false });
  const chosen = views.find((v) => v === search.view);
  const shown = chosen ?? (small && !prefersView(app) ? 'list' : defaultView(app));
  const find = search.find ?? '';
  const problems = search.problems === 'yes';
  const [text, setText] = useState(find);
  useEffect(() => {
    if (text === find) return;
    const timer = setTimeout(() => go(changed(search, { find: text })), 150);
    return () => clearTimeout(timer);
  }, [text]);
  const [orphans, setOrphans] = useState(false);
  const facets = readResource(search.resource).facets;
  const setFacets = (set: Facets) => go(changed(search, { resource: writeFacets(set) }));
  const [flat, setFlat] = useState(false);
  const stale = isStale(app);
  return (
    <Stack gap="xs">
      <Group gap="sm">
        <SegmentedControl
          size="xs"
          aria-label={t('View')}
          value={shown}
          data={views.map((v) => ({ value: v, label: titles[v] }))}
          onChange={(v) => go(changed(search, { view: views.find((known) => known === v) ?? 'tree' }))}
        />
        <TextInput
          size="xs"
          aria-label={t('Find objects')}
          placeholder={t('Find by kind or name')}
          leftSection={<IconSearch size={14} aria-hidden />}
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
        />
        <Switch
          size="xs"
          label={t('Only problems ({{n}})', { n: tree.data?.nodes.filter(isProblem).length ?? 0 })}
          checked={problems}
          onChange={(e) => go(changed(search, { problems: e.currentTarget.checked ? 'yes' : undefined }))}
        />
        <Orphans nodes={tree.data?.nodes ?? []} on={orphans} set={setOrphans} />
        {shown === 'tree' && (
          <Switch
            size="xs"
            label={t('Group many of a kind')}
            checked={!flat}
            onChange={(e) => setFlat(!e.currentTarget.checked)}
          />
        )}
        <FacetFilter nodes={tree.data?.nodes ?? []} value={facets} change={setFacets} />
      </Group>
      <Screen
        query={tree}
        empty={(tree) =>
          tree.nodes.length === 0 ? <Nothing title={t('The cluster holds nothing of this application.')} /> : undefined
        }
      >
        {(tree) => {
          const all = orphans ? tree.nodes : tree.nodes.filter((n) => !n.orphaned);
          const left = matching(all, { find, problems, facets });
          if (left.length === 0) {
            return <Nothing title={problems && !find ? t('No object has a problem.') : t('No object matches.')} />;
          }
          return shown === 'tree' ? (
            <Tree
              nodes={all}
              name={app.metadata.name}
              find={find}
              problems={problems}
              facets={facets}
              flat={flat}
              stale={stale}
              selected={selectedId(tree.nodes, search.object)}
              open={open}
            />
          ) : (
            <Stale value={stale}>
              <Owners value={owners(tree.nodes)}>
                <Tables
                  nodes={left}
                  all={all}
                  app={app}
                  view={shown}
                  open={open}
                  selected={selectedId(tree.nodes, search.object)}
                />
              </Owners>
            </Stale>
          );
        }}
      </Screen>
    </Stack>
  );
}

/** The id of the node whose panel is open; empty: none. */
function selectedId(nodes: Node[], object: string | undefined): string {
  const ref = parseReference(object);
  const node = ref && nodeOf(nodes, ref);
  return node ? nodeId(node) : '';
}

function Orphans({ nodes, on, set }: { nodes: Node[]; on: boolean; set: (on: boolean) => void }) {
  const count = nodes.filter((n) => n.orphaned).length;
  if (count === 0) return null;
  return (
    <Switch
      size="xs"
      label={t('Show orphaned ({{count}})', { count })}
      checked={on}
      onChange={(e) => set(e.currentTarget.checked)}
    />
  );
}

type Open = (node: Node) => void;

/** Whether what is shown is not current. */
const Stale = createContext(false);

/** What owns each object. */
const Owners = createContext<ReadonlyMap<string, string>>(new Map());

interface TablesProps {
  /** Those that match what is searched for, of all. */
  nodes: Node[];
  all: Node[];
  app: Application;
  view: View;
  open: Open;
  selected: string;
}

function Tables({ nodes, all, app, view, open, selected }: TablesProps) {
  const stale = useContext(Stale);
  const [sort, setSort] = useState<PodSort>(defaultPodSort(app));
  if (view === 'list')
    return <Objects nodes={nodes.filter((n) => n.managed || n.orphaned)} label={t('Objects')} open={open} />;
  if (view === 'network') {
    return (
      <Stack gap="sm">
        <NetworkView nodes={all} open={open} selected={selected} stale={stale} />
        {networkNodes(nodes).length > 0 && <Objects nodes={networkNodes(nodes)} label={t('Network')} open={open} />}
      </Stack>
    );
  }
  return (
    <Stack gap="xs">
      <Select
        w={240}
        size="xs"
        label={t('Pods by')}
        value={sort}
        allowDeselect={false}
        data={[
          { value: 'topLevelResource', label: t('top object') },
          { value: 'parentResource', label: t('owner') },
          { value: 'node', label: t('node') },
        ]}
        onChange={(v) => setSort(v === 'node' || v === 'parentResource' ? v : 'topLevelResource')}
      />
      <Pods groups={podGroups(nodes, sort)} open={open} />
    </Stack>
  );
}

function Pods({ groups, open }: { groups: [string, Node[]][]; open: Open }) {
  if (groups.length === 0) return <Nothing title={t('The application has no pods.')} />;
  return groups.map(([name, pods]) => (
    <section key={name} aria-label={name}>
      <Title order={5}>
        {name}{' '}
        <Text span size="sm" c="dimmed">
          {pods.length}
        </Text>
      </Title>
      <Objects nodes={pods} label={t('Pods of {{name}}', { name })} open={open} />
    </section>
  ));
}

/** So many rows are drawn all; of more only those that can be seen. */
const drawnWhole = 100;
const rowHeight = 40;

function Objects({ nodes, label, open }: { nodes: Node[]; label: string; open: Open }) {
  if (nodes.length === 0) return <Nothing title={t('There is nothing of the kind.')} />;
  // Problems first, then as they come.
  const sorted = [...nodes].sort((a, b) => Number(isProblem(b)) - Number(isProblem(a)));
  return sorted.length > drawnWhole ? (
    <Window nodes={sorted} label={label} open={open} />
  ) : (
    <div className="wide">
      <ObjectTable nodes={sorted} label={label} open={open} />
    </div>
  );
}

function Window({ nodes, label, open }: { nodes: Node[]; label: string; open: Open }) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: nodes.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const items = rows.getVirtualItems();
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section ref={scroller} className="list" tabIndex={0} aria-label={`${label}, ${nodes.length}`}>
      <ObjectTable
        nodes={items.flatMap((i) => nodes[i.index] ?? [])}
        label={label}
        open={open}
        before={items[0]?.start ?? 0}
        after={rows.getTotalSize() - (items.at(-1)?.end ?? 0)}
      />
    </section>
  );
}

function ObjectTable(props: { nodes: Node[]; label: string; open: Open; before?: number; after?: number }) {
  const { nodes, label, open, before = 0, after = 0 } = props;
  const stale = useContext(Stale);
  const ownerOf = useContext(Owners);
  return (
    <Table aria-label={label} stickyHeader={before + after > 0}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Object')}</Table.Th>
          <Table.Th>{t('Drift')}</Table.Th>
          <Table.Th>{t('Health')}</Table.Th>
          <Table.Th>{t('Wave')}</Table.Th>
          <Table.Th>{t('About')}</Table.Th>
          <Table.Th>{t('Links')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {before > 0 && <tr aria-hidden style={{ height: before }} />}
        {nodes.map((n) => (
          <Table.Tr key={nodeId(n)} h={rowHeight}>
            <Table.Td>
              <Name node={n} open={open} />
              {ownerOf.has(nodeId(n)) && (
                <Badge size="xs" variant="default" ml={6} tt="none">
                  {t('of {{owner}}', { owner: ownerOf.get(nodeId(n)) ?? '' })}
                </Badge>
              )}
              {n.orphaned ? ` · ${t('orphaned')}` : ''}
              {n.hook ? ` · ${t('hook')}` : ''}
              {n.requiresPruning ? ` · ${t('to be pruned')}` : ''}
              {n.requiresDeletionConfirmation ? ` · ${t('deletion needs approval')}` : ''}
            </Table.Td>
            <Table.Td>{n.managed && n.status && <DriftBadge status={n.status} stale={stale} />}</Table.Td>
            <Table.Td>{n.health && <HealthBadge status={n.health} cause={n.message} stale={stale} />}</Table.Td>
            <Table.Td>{n.syncWave ?? 0}</Table.Td>
            <Table.Td>{shownInfo(n).join(' · ')}</Table.Td>
            <Table.Td>
              <NodeLinks node={n} />
            </Table.Td>
          </Table.Tr>
        ))}
        {after > 0 && <tr aria-hidden style={{ height: after }} />}
      </Table.Tbody>
    </Table>
  );
}

function Name({ node, open }: { node: Node; open: Open }) {
  const text = `${node.kind} ${node.namespace ? `${node.namespace}/` : ''}${node.name}`;
  if (node.orphaned) return <>{text}</>;
  return (
    <UnstyledButton className="name plain" onClick={() => open(node)}>
      {text}
    </UnstyledButton>
  );
}
