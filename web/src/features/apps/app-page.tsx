import { Alert, Anchor, Badge, Group, Paper, Stack, Tabs, Text, Title } from '@mantine/core';
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
import { lazy, Suspense, useState } from 'react';
import type { Application } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact, shortRevision } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { DriftBadge, HealthBadge, StateBadge, stateLabel } from '../../ui/badges';
import { Problem, Screen } from '../../ui/states';
import { externalLinks, managedBy } from './annotations';
import { appMutations, appQueries } from './api';
import { AppWindows } from './app-windows';
import { ApproveButton } from './approve';
import { History } from './history';
import { busy, conditionWords, headlineOf, isStale, operationWord, outweighed, projectOf } from './model';
import { NoticeBanner } from './notice';
import { Operation } from './operation';
import { Resources } from './resources';
import { SyncDialog } from './sync-dialog';

// The diff is large; it is loaded when it is looked at.
const Diff = lazy(() => import('./diff'));

const tabs = ['tree', 'diff', 'operation', 'history'] as const;

/** One application: its state, its tree, its differences, and what one can do. */
export function AppPage() {
  const key = useParams({ from: '/shell/applications/$namespace/$name' });
  const app = useQuery(appQueries.one(key));
  const { tab, view } = useSearch({ from: '/shell/applications/$namespace/$name' });
  const navigate = useNavigate({ from: '/applications/$namespace/$name' });
  const shown = tabs.find((t) => t === tab) ?? 'tree';
  return (
    <Screen query={app}>
      {(a) => (
        <Stack>
          <Head app={a} />
          <Facts app={a} />
          <NoticeBanner app={a} />
          <Notices app={a} />
          <Tabs
            value={shown}
            onChange={(t) => navigate({ search: t && t !== 'tree' ? { tab: t } : {} })}
            keepMounted={false}
          >
            <Tabs.List>
              <Tabs.Tab value="tree">Resources</Tabs.Tab>
              <Tabs.Tab value="diff">Diff</Tabs.Tab>
              <Tabs.Tab value="operation">Last operation</Tabs.Tab>
              <Tabs.Tab value="history">History</Tabs.Tab>
            </Tabs.List>
            <Suspense fallback={<Text p="md">Loading…</Text>}>
              <Tabs.Panel value="tree" pt="sm">
                <Resources
                  appKey={key}
                  app={a}
                  view={view}
                  choose={(v) => navigate({ search: { view: v }, replace: true })}
                />
              </Tabs.Panel>
              <Tabs.Panel value="diff" pt="sm">
                <Diff appKey={key} app={a} />
              </Tabs.Panel>
              <Tabs.Panel value="operation" pt="sm">
                <Operation app={a} />
              </Tabs.Panel>
              <Tabs.Panel value="history" pt="sm">
                <History appKey={key} app={a} />
              </Tabs.Panel>
            </Suspense>
          </Tabs>
        </Stack>
      )}
    </Screen>
  );
}

/** The application that renders this one. */
function Parent({ app }: { app: Application }) {
  const parent = app.status?.capstan?.parent;
  if (!parent) return null;
  return (
    <Text size="sm" c="dimmed">
      {'rendered by '}
      <Anchor renderRoot={(props) => <Link to="/applications/$namespace/$name" params={parent} {...props} />}>
        {parent.name}
      </Anchor>
    </Text>
  );
}

function Head({ app }: { app: Application }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const seen = useDenied('applications', 'get', projectOf(app));
  const denied = useDenied('applications', 'sync', projectOf(app));
  const refresh = useMutation(appMutations.refresh(key));
  const terminate = useMutation(appMutations.terminate(key));
  const [open, setOpen] = useState(false);
  return (
    <Group justify="space-between">
      <Group gap="sm" align="baseline">
        <Title order={2}>
          {app.metadata.name} <ManagedBy app={app} />
        </Title>
        <Parent app={app} />
      </Group>
      <Group gap="xs">
        <ActionButton
          variant="default"
          leftSection={<IconRefresh size={16} aria-hidden />}
          why={seen}
          loading={refresh.isPending}
          onClick={() => refresh.mutate()}
        >
          Refresh
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
            Terminate
          </ActionButton>
        )}
        {app.status?.capstan?.awaitsApproval && <ApproveButton appKey={key} app={app} />}
        <ActionButton
          leftSection={<IconRotateClockwise size={16} aria-hidden />}
          why={denied || (busy(app) ? 'An operation is in progress.' : '')}
          onClick={() => setOpen(true)}
        >
          Sync
        </ActionButton>
      </Group>
      <SyncDialog appKey={key} app={app} opened={open} close={() => setOpen(false)} />
    </Group>
  );
}

/** Where the application is managed, if another installation does that. */
function ManagedBy({ app }: { app: Application }) {
  const url = managedBy(app);
  if (!url) return null;
  return (
    <Anchor href={url} target="_blank" rel="noopener noreferrer" size="sm">
      managed at {new URL(url).host}
    </Anchor>
  );
}

/** Where people reach the application. */
function Links({ app }: { app: Application }) {
  const links = externalLinks(app);
  if (links.length === 0) return null;
  return (
    <Fact label="Links">
      {links.map((l) => (
        <Anchor key={l.title + l.url} href={l.url} target="_blank" rel="noopener noreferrer" size="sm" mr="xs">
          {l.title}
        </Anchor>
      ))}
    </Fact>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <Stack gap={4} role="group" aria-label={label}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <div>{children}</div>
    </Stack>
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
    <Paper withBorder p="sm">
      <Group gap="xl" align="flex-start">
        <Fact label="State">
          <StateBadge state={headline.state} message={sentence(headline.message)} />
          <Text size="xs" c="dimmed" title={exact(headline.since)}>
            {headline.since ? `since ${ago(headline.since, now)}` : ''}
          </Text>
        </Fact>
        <Fact label="Drift">
          <DriftBadge status={app.status?.sync?.status} stale={stale} why={hub?.paused?.message} />
          <Text size="xs" c="dimmed" title={exact(app.status?.reconciledAt)}>
            {app.status?.sync?.revision
              ? `compared ${ago(app.status.reconciledAt, now)} with ${shortRevision(app.status.sync.revision)}`
              : 'not compared yet'}
          </Text>
        </Fact>
        <Fact label="Health">
          <HealthBadge
            status={app.status?.health?.status}
            cause={app.status?.health?.message}
            stale={stale || outweighed(app)}
          />
          <Text size="xs" c="dimmed" maw={320} lineClamp={2}>
            {app.status?.health?.message}
          </Text>
        </Fact>
        <Fact label="Last operation">
          <Badge variant="light" color={op.tone}>
            {op.word}
          </Badge>
          <Text size="xs" c="dimmed" title={exact(state?.finishedAt ?? state?.startedAt)}>
            {state ? ago(state.finishedAt ?? state.startedAt, now) : ''}
          </Text>
        </Fact>
        <Fact label="Automation">
          <Badge
            variant="light"
            color={hub?.automation === 'Waiting' || hub?.automation === 'Paused' ? 'yellow' : 'gray'}
          >
            {hub?.automation ?? 'Manual'}
          </Badge>
        </Fact>
        <AppWindows
          appKey={{ namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name }}
          label="Sync windows"
        />
        <Fact label="Agent">
          <Badge variant="dot" color={stale ? 'gray' : 'teal'}>
            {stale
              ? `${hub?.connection === 'Connected' ? 'Behind' : 'Disconnected'}, as of ${ago(hub?.asOf, now)}`
              : (hub?.connection ?? 'Unknown')}
          </Badge>
        </Fact>
        <Fact label="Source">
          <Text size="sm">
            {app.spec.source?.repoURL ?? `${app.spec.sources?.length ?? 0} sources`}{' '}
            <code>{app.spec.source?.path}</code> {app.spec.source?.targetRevision ?? 'HEAD'}
          </Text>
        </Fact>
        <Links app={app} />
      </Group>
    </Paper>
  );
}

/** That a rollback has paused the application, and the way on. */
function PausedNotice({ app }: { app: Application }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const denied = useDenied('applications', 'sync', projectOf(app));
  const resume = useMutation(appMutations.resume(key));
  const paused = app.status?.capstan?.paused;
  if (!paused) return null;
  return (
    <Alert color="violet" icon={<IconPlayerPause aria-hidden />} title="Paused" role="status">
      <Stack gap="xs" align="flex-start">
        <Text size="sm" className="breakable">
          Paused at <code>{shortRevision(paused.revision)}</code> since {exact(paused.since)}, rolled back by{' '}
          {paused.by}
          {paused.reason ? ` because ${paused.reason}` : ''}. New revisions are not deployed until Git renders something
          other than <code>{shortRevision(paused.skipped)}</code>, or somebody resumes or syncs.
        </Text>
        {resume.error && <Problem error={resume.error} />}
        <ActionButton
          size="xs"
          variant="default"
          leftSection={<IconPlayerPlay size={14} aria-hidden />}
          why={denied}
          loading={resume.isPending}
          onClick={() => resume.mutate()}
        >
          Resume auto-sync
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
              since {exact(c.lastTransitionTime)}
            </Text>
          )}
        </Alert>
      ))}
      {hub?.hold && (
        <Alert color="yellow" icon={<IconPlayerPause aria-hidden />} title="Automation waits">
          {sentence(hub.hold)}
        </Alert>
      )}
    </Stack>
  );
}
