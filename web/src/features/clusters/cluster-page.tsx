import { ActionIcon, Alert, Button, Menu, Stack, Table, Text } from '@mantine/core';
import { IconDots } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { Fragment } from 'react';
import type { Cluster } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { DriftBadge, StateBadge, StateMark } from '../../ui/badges';
import { Fact, Labels, Page, SectionTitle } from '../../ui/page';
import { Nothing, Screen } from '../../ui/states';
import { clusterQueries } from './api';
import { type Ask, Asked } from './cluster-actions';
import { behind } from './cluster-list';
import { actWords, connectionLook, problemOf } from './model';
import { OwnersPolicy } from './owners-policy';
import { UpgradeLine } from './upgrade-line';

const tabs = [
  { key: 'applications', label: 'Applications' },
  { key: 'limits', label: 'Limits' },
  { key: 'enrolments', label: 'Enrolments' },
  { key: 'events', label: 'Events' },
] as const;

/** One cluster: its agent, its applications, what limits it, and everything that can be done to it. */
export function ClusterPage() {
  const { name } = useParams({ from: '/shell/clusters/$name' });
  const search = useSearch({ from: '/shell/clusters/$name' });
  const navigate = useNavigate({ from: '/clusters/$name' });
  const set = (change: { tab?: string | undefined; ask?: string | undefined }) =>
    navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const cluster = useQuery(clusterQueries.one(name));
  const tab = tabs.find((t) => t.key === search.tab)?.key ?? 'applications';
  const c = cluster.data;
  return (
    <Page
      title={name}
      about={
        c && (
          <span className="chips">
            <StateMark look={connectionLook(c)} />
            <Labels labels={c.labels} />
          </span>
        )
      }
      actions={c && <Actions cluster={c} ask={(ask) => set({ ask })} />}
      facts={c && <Facts cluster={c} />}
      tabs={tabs.map((t) => (t.key === 'applications' ? { ...t, count: c?.counts?.applications } : t))}
      tab={tab}
      open={(next) => set({ tab: next })}
    >
      <Screen query={cluster}>
        {(d) => (
          <Stack>
            <Trouble cluster={d} ask={(ask) => set({ ask })} />
            {tab === 'applications' && <Applications name={name} />}
            {tab === 'limits' && <Limits cluster={d} />}
            {tab === 'enrolments' && <Enrolments cluster={d} />}
            {tab === 'events' && <Events name={name} />}
          </Stack>
        )}
      </Screen>
      {c && search.ask && (
        <Asked
          cluster={c}
          ask={search.ask}
          close={() => set({ ask: undefined })}
          gone={() => void navigate({ to: '/clusters' })}
        />
      )}
    </Page>
  );
}

function Actions({ cluster, ask }: { cluster: Cluster; ask: (ask: Ask) => void }) {
  const override = useDenied('clusters', 'override');
  return (
    <>
      <ActionButton variant="default" why={override} onClick={() => ask('pause')}>
        Pause automation
      </ActionButton>
      {cluster.upgradable && (
        <ActionButton why={override} onClick={() => ask('upgrade')}>
          Upgrade agent
        </ActionButton>
      )}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="default" size={28} aria-label={`More about ${cluster.name}`}>
            <IconDots size={16} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => ask('edit')}>Edit labels and address</Menu.Item>
          <Menu.Item renderRoot={(p) => <Link to="/clusters" search={{ enroll: cluster.name }} {...p} />}>
            New join token
          </Menu.Item>
          <Menu.Item onClick={() => ask('revoke')}>Cut the agent off</Menu.Item>
          <Menu.Item color="red" onClick={() => ask('remove')}>
            Remove the cluster
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}

function Facts({ cluster: c }: { cluster: Cluster }) {
  return (
    <>
      <Fact
        label="Heartbeat"
        title={exact(c.lastSeen)}
        note={c.backlog ? `${c.backlog} changes wait in the agent` : ''}
      >
        {ago(c.lastSeen, Date.now())}
      </Fact>
      <Fact label="Agent" note={<UpgradeLine upgrade={c.upgrade} />}>
        {c.agentVersion ?? '–'}
      </Fact>
      <Fact label="Kubernetes" note={c.counts ? `${c.counts.apis} APIs` : ''}>
        {c.kubeVersion ?? '–'}
      </Fact>
      <Fact label="Rights" note={c.scope?.project ? `belongs to project ${c.scope.project}` : ''}>
        {c.scope?.namespaces?.length ? `${c.scope.namespaces.length} namespaces` : 'Every namespace'}
      </Fact>
      <Fact label="Objects" note={`${c.counts?.applications ?? 0} applications`}>
        {c.counts?.objects ?? '–'}
      </Fact>
      <Fact
        label="Behind by"
        note={c.receipt ? `equal on both sides ${ago(c.receipt.at, Date.now())}` : 'no receipt yet'}
      >
        {behind(c)}
      </Fact>
    </>
  );
}

/** What is wrong with the cluster, and the decision that ends it. */
function Trouble({ cluster: c, ask }: { cluster: Cluster; ask: (ask: Ask) => void }) {
  const problem = problemOf(c);
  if (!problem) return null;
  return (
    <Alert color={c.quarantine || c.rewind ? 'yellow' : 'red'} title={sentence(problem)} role="alert">
      <Stack gap="xs" align="flex-start">
        {c.refusal && (
          <Text size="sm">
            {exact(c.refusal.at)} from {c.refusal.address}
            {c.refusal.agentVersion && `, agent ${c.refusal.agentVersion}`}.
          </Text>
        )}
        {c.quarantine && (
          <>
            <Text size="sm">
              Since {exact(c.quarantine.since)}. The later one came from {c.quarantine.address}.
            </Text>
            <Button size="compact-sm" onClick={() => ask('keep')}>
              Choose which one keeps it
            </Button>
          </>
        )}
        {c.rewind && (
          <>
            <Text size="sm">
              The agent has row {c.rewind.agentSeq}, the log of the hub ended at row {c.rewind.hubSeq}. Nothing is
              deleted meanwhile.
            </Text>
            <Button size="compact-sm" onClick={() => ask('accept-hub')}>
              Accept the state of the hub
            </Button>
          </>
        )}
      </Stack>
    </Alert>
  );
}

function Applications({ name }: { name: string }) {
  const apps = useQuery(clusterQueries.applications(name));
  return (
    <section aria-label="Applications">
      <SectionTitle
        right={
          <Link to="/applications" search={{ q: `cluster:${JSON.stringify(name)}` }}>
            All on this cluster
          </Link>
        }
      >
        Applications
      </SectionTitle>
      <Screen
        query={apps}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title="No application is deployed to this cluster.">
              Name it as <code>destination.name</code> of one.
            </Nothing>
          ) : undefined
        }
      >
        {(d) => (
          <div className="wide">
            <Table highlightOnHover aria-label={`Applications on ${name}`}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Name</Table.Th>
                  <Table.Th>State</Table.Th>
                  <Table.Th>Why</Table.Th>
                  <Table.Th className="second">Drift</Table.Th>
                  <Table.Th className="second">Project</Table.Th>
                  <Table.Th className="second">Namespace</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.items.map((a) => (
                  <Table.Tr key={`${a.metadata.namespace}/${a.metadata.name}`}>
                    <Table.Td>
                      <Link
                        to="/applications/$namespace/$name"
                        params={{ namespace: a.metadata.namespace ?? 'argocd', name: a.metadata.name }}
                      >
                        {a.metadata.name}
                      </Link>
                    </Table.Td>
                    <Table.Td>
                      <StateBadge state={a.status?.capstan?.headline?.state ?? 'Unknown'} weight="quiet" />
                    </Table.Td>
                    <Table.Td className="breakable">{a.status?.capstan?.headline?.message}</Table.Td>
                    <Table.Td className="second">
                      <DriftBadge
                        status={a.status?.sync?.status}
                        stale={a.status?.capstan?.stale !== undefined}
                        weight="quiet"
                      />
                    </Table.Td>
                    <Table.Td className="second">{a.spec.project}</Table.Td>
                    <Table.Td className="second">{a.spec.destination?.namespace}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Screen>
    </section>
  );
}

function Limits({ cluster: c }: { cluster: Cluster }) {
  const facts: [string, string][] = [
    ['Address', c.server || 'none: destinations name it by its name'],
    ['Project', c.scope?.project || 'none: projects list it among their destinations'],
    ['Namespaces', c.scope?.namespaces?.join(', ') || 'all'],
    ['Cluster-scoped objects', !c.scope?.namespaces?.length || c.scope.clusterResources ? 'managed' : 'left alone'],
    ['Identity', c.fingerprint ? `kube-system ${c.fingerprint}` : 'not known before its agent connects'],
    ['Upgrades by the hub', c.upgradable ? 'permitted by the owner' : 'not permitted by the owner'],
  ];
  return (
    <section aria-label="Limits">
      <SectionTitle>Registration</SectionTitle>
      <dl className="facts-list cluster-terms">
        {facts.map(([label, value]) => (
          <Fragment key={label}>
            <dt>{label}</dt>
            <dd className="breakable">{value}</dd>
          </Fragment>
        ))}
      </dl>
      <OwnersPolicy name={c.name} />
    </section>
  );
}

function Enrolments({ cluster: c }: { cluster: Cluster }) {
  const all = c.enrolments ?? [];
  if (all.length === 0) return <Nothing title="No join token was made for this cluster." />;
  return (
    <div className="wide">
      <Table aria-label="Enrolments">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Token</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th>Made by</Table.Th>
            <Table.Th>Attempts</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {all.map((e) => (
            <Table.Tr key={e.id}>
              <Table.Td>
                <code>{e.prefix}…</code>
              </Table.Td>
              <Table.Td>
                {e.usedAt
                  ? `Used ${exact(e.usedAt)}`
                  : Date.parse(e.expiresAt) < Date.now()
                    ? `Expired ${exact(e.expiresAt)}`
                    : `Open until ${exact(e.expiresAt)}`}
              </Table.Td>
              <Table.Td>{e.createdBy}</Table.Td>
              <Table.Td>
                {(e.attempts ?? []).map((a) => (
                  <Text size="xs" key={`${a.at} ${a.stage}`} title={exact(a.at)}>
                    {a.stage === 'issued' ? 'Certificate issued' : `Refused (${a.stage})`}, from {a.address}
                  </Text>
                ))}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Events({ name }: { name: string }) {
  const denied = useDenied('audit', 'get');
  const events = useQuery({ ...clusterQueries.events(name), enabled: !denied });
  if (denied) return <Nothing title="You may not see who did what here.">{denied}</Nothing>;
  return (
    <Screen
      query={events}
      empty={(d) => (d.items.length === 0 ? <Nothing title="Nobody has done anything to this cluster." /> : undefined)}
    >
      {(d) => (
        <Table aria-label="Events">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Time</Table.Th>
              <Table.Th>What</Table.Th>
              <Table.Th>By</Table.Th>
              <Table.Th className="second">Reason</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {d.items.map((r) => (
              <Table.Tr key={r.seq}>
                <Table.Td title={exact(r.at)}>{ago(r.at, Date.now())}</Table.Td>
                <Table.Td>
                  {actWords(r.action, r.object)} {r.result !== 'allowed' && `(${r.result})`}
                </Table.Td>
                <Table.Td>{r.actor}</Table.Td>
                <Table.Td className="second">{r.reason}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Screen>
  );
}
