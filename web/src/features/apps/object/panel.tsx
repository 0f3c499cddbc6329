import { ActionIcon, Tabs, Text, Tooltip } from '@mantine/core';
import { useHotkeys, useMediaQuery } from '@mantine/hooks';
import { IconArrowsDiagonal, IconArrowsDiagonalMinimize2, IconCopy, IconX } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { type CSSProperties, lazy, type ReactNode, Suspense, useEffect, useRef } from 'react';
import type { Application, Node } from '../../../api/client';
import { noticeQueries } from '../../../api/notices';
import { useDenied } from '../../../api/session';
import { DriftBadge, HealthBadge } from '../../../ui/badges';
import { Nothing, Screen } from '../../../ui/states';
import { useChosenInSight } from '../../../ui/tabs';
import { type AppKey, appQueries } from '../api';
import { isStale, projectOf } from '../model';
import { type AppSearch, changed } from '../search';
import { ObjectActions } from './actions';
import { ObjectEvents } from './events';
import './panel.css';
import { t } from '../../../texts';
import { nodeOf, parseReference, type Reference, referenceOf, related } from './reference';
import { Related } from './related';
import { hasLogs } from './summary';
import { ObjectSummary } from './summary-view';
import { usePanelWidth } from './width';

// The editor and the comparison are large; they are loaded when they are looked at.
const ObjectYaml = lazy(() => import('./yaml'));
const Logs = lazy(() => import('../logs/viewer'));

const Terminal = lazy(() => import('../terminal/view'));

const tabs = ['summary', 'yaml', 'events', 'logs', 'terminal', 'actions', 'related'] as const;
type Tab = (typeof tabs)[number];

const titles: Record<Tab, string> = {
  summary: t('Summary'),
  yaml: 'YAML',
  events: t('Events'),
  logs: t('Logs'),
  terminal: t('Terminal'),
  actions: t('Actions'),
  related: t('Related'),
};

/** Below this width the panel takes the whole page. */
const narrow = '(max-width: 900px)';

interface Props {
  appKey: AppKey;
  app: Application;
  search: AppSearch;
  /** Goes to another state of the page. */
  go: (search: AppSearch) => void;
  close: () => void;
}

/** The panel beside the page that shows the object of the address. */
export function ObjectPanel(props: Props) {
  const ref = parseReference(props.search.object);
  return ref ? <Frame {...props} object={ref} /> : null;
}

function Frame({ appKey, app, search, go, close, object }: Props & { object: Reference }) {
  const tree = useQuery(appQueries.tree(appKey));
  const small = useMediaQuery(narrow, false, { getInitialValueInEffect: false });
  const full = search.full === 'yes' || small;
  const width = usePanelWidth();
  const heading = useRef<HTMLHeadingElement>(null);
  const id = referenceOf(object);
  useEffect(() => heading.current?.focus({ preventScroll: true }), [id]);
  const toggle = () => go(changed(search, { full: search.full === 'yes' ? undefined : 'yes' }));
  useHotkeys([
    ['Escape', close],
    ['f', toggle],
  ]);
  const style: CSSProperties & { '--panel': string } = { '--panel': `${width.value}px` };
  return (
    <aside className="object-panel" data-full={full} style={style} aria-label={`${object.kind} ${object.name}`}>
      {!full && <Grip width={width} />}
      <header>
        <div className="object-title">
          <Text size="xs" c="dimmed">
            {object.namespace
              ? t('{{object}} in {{namespace}}', { object: object.kind, namespace: object.namespace })
              : object.kind}
            {app.status?.capstan?.cluster ? `, ${app.status.capstan.cluster}` : ''}
          </Text>
          <h3 ref={heading} tabIndex={-1}>
            {object.name}
          </h3>
        </div>
        <IconButton label={t('Copy the name')} onClick={() => void navigator.clipboard?.writeText(object.name)}>
          <IconCopy size={16} aria-hidden />
        </IconButton>
        {!small && (
          <IconButton label={search.full === 'yes' ? t('Beside the page (f)') : t('Full page (f)')} onClick={toggle}>
            {search.full === 'yes' ? (
              <IconArrowsDiagonalMinimize2 size={16} aria-hidden />
            ) : (
              <IconArrowsDiagonal size={16} aria-hidden />
            )}
          </IconButton>
        )}
        <IconButton label={t('Close the panel (Esc)')} onClick={close}>
          <IconX size={16} aria-hidden />
        </IconButton>
      </header>
      <Screen query={tree}>
        {(tree) => {
          const node = nodeOf(tree.nodes, object);
          return node ? (
            <Body appKey={appKey} app={app} nodes={tree.nodes} node={node} search={search} go={go} />
          ) : (
            <Nothing title={t('The application has no such object now.')}>
              {t('It may have been deleted, or its name has changed.')}
            </Nothing>
          );
        }}
      </Screen>
    </aside>
  );
}

function IconButton({ label, onClick, children }: { label: string; onClick: () => void; children: ReactNode }) {
  return (
    <Tooltip label={label}>
      <ActionIcon variant="subtle" color="gray" aria-label={label} onClick={onClick}>
        {children}
      </ActionIcon>
    </Tooltip>
  );
}

/** What the width of the panel is changed with: by the mouse, or by arrows. */
function Grip({ width }: { width: ReturnType<typeof usePanelWidth> }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a separator that is moved is no <hr>
    <div
      className="grip"
      role="separator"
      aria-orientation="vertical"
      aria-label={t('Width of the panel')}
      aria-valuenow={width.value}
      aria-valuemin={width.least}
      aria-valuemax={width.most}
      tabIndex={0}
      onPointerDown={(e) => {
        e.preventDefault();
        e.currentTarget.setPointerCapture(e.pointerId);
      }}
      onPointerMove={(e) => {
        if (e.currentTarget.hasPointerCapture(e.pointerId)) width.set(window.innerWidth - e.clientX);
      }}
      onKeyDown={(e) => {
        const step = { ArrowLeft: 32, ArrowRight: -32, Home: -2000, End: 2000 }[e.key];
        if (step === undefined) return;
        e.preventDefault();
        width.set(width.value + step);
      }}
    />
  );
}

interface BodyProps {
  appKey: AppKey;
  app: Application;
  nodes: Node[];
  node: Node;
  search: AppSearch;
  go: (search: AppSearch) => void;
}

/** Whether one may open a shell in what a node is; the hub stays the judge. */
function useMayRun(app: Application, node: Node): boolean {
  const denied = useDenied('exec', 'create', projectOf(app));
  const features = useQuery(noticeQueries.client()).data?.features;
  return !denied && features?.exec === true && node.group === '' && node.kind === 'Pod' && !node.orphaned;
}

function Body({ appKey, app, nodes, node, search, go }: BodyProps) {
  const events = useQuery(appQueries.events(appKey, node));
  const warnings = events.data?.filter((e) => e.type === 'Warning').length ?? 0;
  const mayRun = useMayRun(app, node);
  const shown = tabs.filter(
    (tab) =>
      (tab !== 'logs' || hasLogs(node.group, node.kind)) &&
      (tab !== 'terminal' || mayRun) &&
      (tab !== 'actions' || !node.orphaned),
  );
  const tab = shown.find((tab) => tab === search.panel) ?? 'summary';
  const open = (n: Node, panel?: string) => go(changed(search, { object: referenceOf(n), panel, log: undefined }));
  const { owners, children } = related(nodes, node);
  const list = useChosenInSight(tab, warnings, owners.length + children.length);
  return (
    <>
      <div className="object-states">
        {node.health && <HealthBadge status={node.health} cause={node.message} stale={isStale(app)} />}
        {node.managed && node.status && <DriftBadge status={node.status} stale={isStale(app)} />}
        {node.message && <span className="object-cause">{node.message}</span>}
      </div>
      <Tabs
        className="object-tabs"
        value={tab}
        keepMounted={false}
        onChange={(tree) => go(changed(search, { panel: tree && tree !== 'summary' ? tree : undefined }))}
      >
        <Tabs.List ref={list} aria-label={t('About {{kind}} {{name}}', { kind: node.kind, name: node.name })}>
          {shown.map((tab) => (
            <Tabs.Tab key={tab} value={tab}>
              {titles[tab]}
              {tab === 'events' && warnings > 0 && <span className="tab-count failed">{warnings}</span>}
              {tab === 'related' && <span className="tab-count">{owners.length + children.length}</span>}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Suspense fallback={<Text p="md">{t('Loading …')}</Text>}>
          <Tabs.Panel value="summary">
            <ObjectSummary
              appKey={appKey}
              node={node}
              owner={owners[0]}
              open={open}
              openLogs={(container) =>
                go(
                  changed(search, {
                    panel: 'logs',
                    log: container ? `container=${encodeURIComponent(container)}` : undefined,
                  }),
                )
              }
            />
          </Tabs.Panel>
          <Tabs.Panel value="yaml">
            <ObjectYaml appKey={appKey} app={app} node={node} />
          </Tabs.Panel>
          <Tabs.Panel value="events">
            <ObjectEvents query={events} />
          </Tabs.Panel>
          <Tabs.Panel value="logs">
            <Logs appKey={appKey} nodes={nodes} target={node} search={search} go={go} />
          </Tabs.Panel>
          <Tabs.Panel value="terminal">
            <Terminal appKey={appKey} node={node} />
          </Tabs.Panel>
          <Tabs.Panel value="actions">
            <ObjectActions appKey={appKey} app={app} node={node} />
          </Tabs.Panel>
          <Tabs.Panel value="related">
            <Related owners={owners} items={children} open={open} />
          </Tabs.Panel>
        </Suspense>
      </Tabs>
    </>
  );
}
