import { Alert, Anchor, Group, Stack, Tabs, Text, Title } from '@mantine/core';
import {
  IconAlertTriangle,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlayerStop,
  IconRefresh,
  IconRotateClockwise,
} from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { lazy, Suspense, useEffect } from 'react';
import type { Application, Node } from '../../api/client';
import { showApplication } from '../../api/detail';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact, shortRevision } from '../../format/format';
import { number, Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { automationLooks, DriftBadge, HealthBadge, StateBadge, StateMark, stateLabel } from '../../ui/badges';
import { useOpener } from '../../ui/focus';
import { Problem, Screen } from '../../ui/states';
import { useChosenInSight } from '../../ui/tabs';
import { externalLinks, managedBy } from './annotations';
import { type AppKey, appMutations, appQueries } from './api';
import { AppWindows } from './app-windows';
import { ApproveButton } from './approve';
import { Cause } from './cause';
import { ApplicationLinks, useApplicationLinks } from './declared-links';
import { History } from './history';
import {
  agentLook,
  busy,
  clusterOf,
  conditionWords,
  headlineOf,
  isStale,
  operationWord,
  outweighed,
  projectOf,
} from './model';
import { NoticeBanner } from './notice';
import { ObjectEvents } from './object/events';
import { ObjectPanel } from './object/panel';
import { parseReference, referenceOf } from './object/reference';
import { Operation } from './operation';
import { Resources } from './resources';
import { type AppSearch, changed } from './search';
import { Sources } from './source';
import { SyncPanel } from './sync/panel';

// These are large; they are loaded when they are looked at.
const Diff = lazy(() => import('./diff/tab'));
const Logs = lazy(() => import('./logs/viewer'));
const Settings = lazy(() => import('./edit/settings-tab'));

const tabs = ['tree', 'diff', 'operation', 'history', 'events', 'logs', 'settings'] as const;

/** One application: its state, its tree, its differences, and what one can do. */
export function AppPage() {
  const key = useParams({ from: '/shell/applications/$namespace/$name' });
  const app = useQuery(appQueries.one(key));
  const search = useSearch({ from: '/shell/applications/$namespace/$name' });
  const navigate = useNavigate({ from: '/applications/$namespace/$name' });
  const opener = useOpener();
  const state = { object: search.object, open: search.open, tab: search.tab };
  const go = (to: AppSearch) =>
    // What one types or drags is no place to go back to.
    navigate({ search: to, replace: to.object === state.object && to.open === state.open && to.tab === state.tab });
  const open = (node: Node) => {
    opener.remember();
    go(changed(search, { object: referenceOf(node), log: undefined }));
  };
  const close = () => {
    go(changed(search, { object: undefined, panel: undefined, full: undefined, log: undefined }));
    opener.restore();
  };
  return (
    <Screen query={app}>
      {(a) => (
        <Stack className="app-page" data-panel={parseReference(search.object) !== undefined}>
          <Head app={a} search={search} go={go} />
          <Facts app={a} />
          <NoticeBanner app={a} />
          <Cause appKey={key} search={search} go={go} />
          <Notices app={a} />
          <Contents appKey={key} app={a} search={search} go={go} open={open} />
          <ObjectPanel appKey={key} app={a} search={search} go={go} close={close} />
        </Stack>
      )}
    </Screen>
  );
}

interface ContentsProps {
  appKey: AppKey;
  app: Application;
  search: AppSearch;
  go: (search: AppSearch) => void;
  open: (node: Node) => void;
}

/** The tabs of the page, and what the chosen one has. */
function Contents({ appKey, app, search, go, open }: ContentsProps) {
  const shown = tabs.find((tab) => tab === search.tab) ?? 'tree';
  const tree = useQuery(appQueries.tree(appKey));
  const there = tree.data !== undefined;
  useEffect(() => {
    if (!there) return;
    showApplication(`${appKey.namespace}/${appKey.name}`);
    return () => showApplication('');
  }, [appKey.namespace, appKey.name, there]);
  const list = useChosenInSight(shown, tree.data?.nodes.length);
  return (
    <Tabs
      value={shown}
      onChange={(tab) =>
        go(
          changed(search, {
            tab: tab && tab !== 'tree' ? tab : undefined,
            object: undefined,
            panel: undefined,
            log: undefined,
            change: undefined,
          }),
        )
      }
      keepMounted={false}
    >
      <Tabs.List ref={list}>
        <Tabs.Tab value="tree">
          {t('Resources')}
          <span className="tab-count">{tree.data?.nodes.filter((n) => !n.orphaned).length}</span>
        </Tabs.Tab>
        <Tabs.Tab value="diff">
          {t('Diff')}
          <Drifted nodes={tree.data?.nodes ?? []} />
        </Tabs.Tab>
        <Tabs.Tab value="operation">{t('Last operation')}</Tabs.Tab>
        <Tabs.Tab value="history">{t('History')}</Tabs.Tab>
        <Tabs.Tab value="events">{t('Events')}</Tabs.Tab>
        <Tabs.Tab value="logs">{t('Logs')}</Tabs.Tab>
        <Tabs.Tab value="settings">{t('Settings')}</Tabs.Tab>
      </Tabs.List>
      <Suspense fallback={<Text p="md">{t('Loading …')}</Text>}>
        <Tabs.Panel value="tree" pt="sm">
          <Resources appKey={appKey} app={app} search={search} go={go} open={open} />
        </Tabs.Panel>
        <Tabs.Panel value="diff" pt="sm">
          <Diff appKey={appKey} app={app} search={search} go={go} />
        </Tabs.Panel>
        <Tabs.Panel value="operation" pt="sm">
          <Operation appKey={appKey} app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="history" pt="sm">
          <History appKey={appKey} app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="events">
          <Events appKey={appKey} />
        </Tabs.Panel>
        <Tabs.Panel value="settings" pt="sm">
          <Settings appKey={appKey} app={app} search={search} go={go} />
        </Tabs.Panel>
        <Tabs.Panel value="logs">
          <div className="app-logs">
            {!search.object && <Logs appKey={appKey} nodes={tree.data?.nodes ?? []} search={search} go={go} />}
          </div>
        </Tabs.Panel>
      </Suspense>
    </Tabs>
  );
}

function Drifted({ nodes }: { nodes: Node[] }) {
  const count = nodes.filter((n) => n.managed && n.status === 'OutOfSync').length;
  return count > 0 ? <span className="tab-count">{count}</span> : null;
}

/** Events of all objects of the application. */
function Events({ appKey }: { appKey: AppKey }) {
  return <ObjectEvents query={useQuery(appQueries.events(appKey))} objects />;
}

/** The application that renders this one. */
function Parent({ app }: { app: Application }) {
  const parent = app.status?.capstan?.parent;
  if (!parent) return null;
  return (
    <Text size="sm" c="dimmed">
      <Rich
        text="rendered by <parent/>"
        parts={{
          parent: (
            <Anchor renderRoot={(props) => <Link to="/applications/$namespace/$name" params={parent} {...props} />}>
              {parent.name}
            </Anchor>
          ),
        }}
      />
    </Text>
  );
}

/** The ApplicationSet that generates this one. */
function GeneratedBy({ app }: { app: Application }) {
  const set = app.status?.capstan?.applicationSet;
  if (!set) return null;
  return (
    <Text size="sm" c="dimmed">
      <Rich
        text="generated by <set/>"
        parts={{
          set: (
            <Anchor renderRoot={(props) => <Link to="/applicationsets/$namespace/$name" params={set} {...props} />}>
              {set.name}
            </Anchor>
          ),
        }}
      />
    </Text>
  );
}

function Head({ app, search, go }: { app: Application; search: AppSearch; go: (search: AppSearch) => void }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const seen = useDenied('applications', 'get', projectOf(app));
  const denied = useDenied('applications', 'sync', projectOf(app));
  const refresh = useMutation(appMutations.refresh(key));
  const terminate = useMutation(appMutations.terminate(key));
  return (
    <Group justify="space-between">
      <Group gap="sm" align="baseline">
        <Title order={2}>
          {app.metadata.name} <ManagedBy app={app} />
        </Title>
        <Parent app={app} />
        <GeneratedBy app={app} />
      </Group>
      <Group gap="xs">
        <ActionButton
          variant="default"
          leftSection={<IconRefresh size={16} aria-hidden />}
          why={seen}
          loading={refresh.isPending}
          onClick={() => refresh.mutate()}
        >
          {t('Refresh')}
        </ActionButton>
        {busy(app) && (
          <ActionButton
            variant="light"
            color="red"
            leftSection={<IconPlayerStop size={16} aria-hidden />}
            why={denied}
            loading={terminate.isPending}
            onClick={() => terminate.mutate()}
          >
            {t('Terminate')}
          </ActionButton>
        )}
        {app.status?.capstan?.awaitsApproval && <ApproveButton appKey={key} app={app} />}
        <ActionButton
          leftSection={<IconRotateClockwise size={16} aria-hidden />}
          why={denied || (busy(app) ? t('An operation is in progress.') : '')}
          onClick={() => go(changed(search, { open: 'sync' }))}
        >
          {t('Sync')}
        </ActionButton>
      </Group>
      <SyncPanel
        appKey={key}
        app={app}
        opened={search.open === 'sync'}
        close={() => go(changed(search, { open: undefined }))}
        started={() => go(changed(search, { open: undefined, tab: 'operation', object: undefined, panel: undefined }))}
      />
    </Group>
  );
}

/** Where the application is managed, if another installation does that. */
function ManagedBy({ app }: { app: Application }) {
  const url = managedBy(app);
  if (!url) return null;
  return (
    <Anchor href={url} target="_blank" rel="noopener noreferrer" size="sm">
      {t('managed at {{host}}', { host: new URL(url).host })}
    </Anchor>
  );
}

/** Where people reach the application. */
function Links({ app }: { app: Application }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const links = externalLinks(app);
  const declared = useApplicationLinks(key);
  if (links.length === 0 && !declared) return null;
  return (
    <Fact label={t('Links')}>
      {links.map((l) => (
        <Anchor key={l.title + l.url} href={l.url} target="_blank" rel="noopener noreferrer" size="sm" mr="xs">
          {l.title}
        </Anchor>
      ))}
      <ApplicationLinks appKey={key} />
    </Fact>
  );
}

function Fact({ label, wide, children }: { label: string; wide?: boolean; children: ReactNode }) {
  return (
    <Stack gap={4} role="group" aria-label={label} className={wide ? 'wide-fact' : undefined}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <div>{children}</div>
    </Stack>
  );
}

/** The cluster and the namespace that an application is deployed to. */
function Destination({ app }: { app: Application }) {
  const known = app.status?.capstan?.cluster;
  const namespace = app.spec.destination?.namespace;
  return (
    <>
      <div className="breakable">
        {known ? (
          <Anchor size="sm" renderRoot={(props) => <Link to="/clusters/$name" params={{ name: known }} {...props} />}>
            {known}
          </Anchor>
        ) : (
          clusterOf(app) || t('none')
        )}
      </div>
      {namespace && (
        <Text size="xs" c="dimmed" className="breakable">
          {namespace}
        </Text>
      )}
    </>
  );
}

function Facts({ app }: { app: Application }) {
  const stale = isStale(app);
  const op = operationWord(app);
  const headline = headlineOf(app);
  const hub = app.status?.capstan;
  const state = app.status?.operationState;
  const now = Date.now();
  return (
    <div className="facts">
      <Fact label={t('State')}>
        <StateBadge state={headline.state} message={sentence(headline.message)} />
        <Text size="xs" c="dimmed" title={exact(headline.since)}>
          {headline.since ? t('since {{time}}', { time: ago(headline.since, now) }) : ''}
        </Text>
      </Fact>
      <Fact label={t('Drift')}>
        <DriftBadge status={app.status?.sync?.status} stale={stale} why={hub?.paused?.message} />
        <Text size="xs" c="dimmed" title={exact(app.status?.reconciledAt)}>
          {app.status?.sync?.revision
            ? t('compared {{time}} with {{revision}}', {
                time: ago(app.status.reconciledAt, now),
                revision: shortRevision(app.status.sync.revision),
              })
            : t('not compared yet')}
        </Text>
      </Fact>
      <Fact label={t('Health')}>
        <HealthBadge
          status={app.status?.health?.status}
          cause={app.status?.health?.message}
          stale={stale || outweighed(app)}
        />
        <Text size="xs" c="dimmed" maw={320} lineClamp={2}>
          {app.status?.health?.message}
        </Text>
      </Fact>
      <Fact label={t('Last operation')}>
        <StateMark look={{ ...op, label: op.word }} />
        <Text size="xs" c="dimmed" title={exact(state?.finishedAt ?? state?.startedAt)}>
          {state ? ago(state.finishedAt ?? state.startedAt, now) : ''}
        </Text>
      </Fact>
      <Fact label={t('Automation')}>
        <StateMark look={automationLooks[hub?.automation ?? 'Manual']} />
      </Fact>
      <AppWindows app={app} label={t('Sync windows')} />
      <Fact label={t('Agent')}>
        <StateMark look={agentLook(app)} />
        <Text size="xs" c="dimmed" title={exact(hub?.asOf)}>
          {stale && hub?.asOf ? t('as of {{time}}', { time: ago(hub.asOf, now) }) : ''}
        </Text>
      </Fact>
      <Fact label={t('Destination')}>
        <Destination app={app} />
      </Fact>
      <Fact label={t('Source')} wide>
        <Sources appKey={{ namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name }} app={app} />
      </Fact>
      <Links app={app} />
    </div>
  );
}

type Paused = NonNullable<NonNullable<NonNullable<Application['status']>['capstan']>['paused']>;

/** What has paused an application, since when, and what ends it. */
function WhyPaused({ paused }: { paused: Paused }) {
  const revision = <code>{shortRevision(paused.revision)}</code>;
  const since = <>{exact(paused.since)}</>;
  const { renderers } = paused;
  if (renderers) {
    return (
      <Rich
        text="Paused at <revision/> since <since/>: the renderers changed from <from/> to <to/>, and equal sources give other objects: <changed/> changed, <added/> added, <removed/> removed. Nothing of it is deployed until somebody resumes or syncs, or Git renders something else."
        parts={{
          revision,
          since,
          from: <>{renderers.from}</>,
          to: <>{renderers.to}</>,
          changed: <>{number(renderers.changed)}</>,
          added: <>{number(renderers.added)}</>,
          removed: <>{number(renderers.removed)}</>,
        }}
      />
    );
  }
  const skipped = <code>{shortRevision(paused.skipped)}</code>;
  const by = <>{paused.by}</>;
  return paused.reason ? (
    <Rich
      text="Paused at <revision/> since <since/>, rolled back by <by/> because <reason/>. New revisions are not deployed until Git renders something other than <skipped/>, or somebody resumes or syncs."
      parts={{ revision, since, by, reason: <>{paused.reason}</>, skipped }}
    />
  ) : (
    <Rich
      text="Paused at <revision/> since <since/>, rolled back by <by/>. New revisions are not deployed until Git renders something other than <skipped/>, or somebody resumes or syncs."
      parts={{ revision, since, by, skipped }}
    />
  );
}

/** That a rollback or an upgrade of the renderers has paused the application, and the way on. */
function PausedNotice({ app }: { app: Application }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const denied = useDenied('applications', 'sync', projectOf(app));
  const resume = useMutation(appMutations.resume(key));
  const paused = app.status?.capstan?.paused;
  if (!paused) return null;
  return (
    <Alert color="violet" icon={<IconPlayerPause aria-hidden />} title={t('Paused')} role="status">
      <Stack gap="xs" align="flex-start">
        <Text size="sm" className="breakable">
          <WhyPaused paused={paused} />
        </Text>
        {resume.error && <Problem error={resume.error} />}
        <ActionButton
          size="xs"
          variant="default"
          leftSection={<IconPlayerPlay size={14} aria-hidden />}
          why={
            denied || (busy(app) ? t('An operation is in progress. Auto-sync can be resumed when it has ended.') : '')
          }
          loading={resume.isPending}
          onClick={() => resume.mutate()}
        >
          {t('Resume auto-sync')}
        </ActionButton>
      </Stack>
    </Alert>
  );
}

function Notices({ app }: { app: Application }) {
  const hub = app.status?.capstan;
  const conditions = app.status?.conditions ?? [];
  const headline = headlineOf(app);
  const alarming = ['SyncFailed', 'Missing', 'Stale'].includes(headline.state) && headline.message !== '';
  if (!hub?.hold && !hub?.paused && !alarming && conditions.length === 0) return null;
  return (
    <Stack gap="xs">
      {alarming && (
        <Alert
          color={headline.state === 'Stale' ? 'gray' : headline.state === 'Missing' ? 'yellow' : 'red'}
          icon={<IconAlertTriangle aria-hidden />}
          title={stateLabel(headline.state)}
          role={headline.state === 'Stale' ? 'status' : 'alert'}
        >
          <Text size="sm" className="breakable">
            {sentence(headline.message)}
          </Text>
        </Alert>
      )}
      {hub?.paused && <PausedNotice app={app} />}
      {conditions.map((c) => (
        <Alert
          key={`${c.type}${c.message}`}
          color={c.type.endsWith('Warning') ? 'yellow' : 'red'}
          icon={<IconAlertTriangle aria-hidden />}
          title={conditionWords(c.type)}
          role={c.type.endsWith('Warning') ? 'status' : 'alert'}
        >
          <Text size="sm" className="breakable">
            {sentence(c.message)}
          </Text>
          {c.lastTransitionTime && (
            <Text size="xs" mt={4}>
              {t('since {{time}}', { time: exact(c.lastTransitionTime) })}
            </Text>
          )}
        </Alert>
      ))}
      {hub?.hold && (
        <Alert color="yellow" icon={<IconPlayerPause aria-hidden />} title={t('Automation waits')}>
          {sentence(hub.hold)}
        </Alert>
      )}
    </Stack>
  );
}
