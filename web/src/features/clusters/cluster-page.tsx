import { ActionIcon, Alert, Button, Menu, Stack, Table, Text } from '@mantine/core';
import { IconDots } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { Fragment } from 'react';
import type { Cluster } from '../../api/client';
import { sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { Rich, t } from '../../texts';
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
  { key: 'applications', label: t('Applications') },
  { key: 'limits', label: t('Limits') },
  { key: 'enrolments', label: t('Enrolments') },
  { key: 'events', label: t('Events') },
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
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'applications';
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
      tabs={tabs.map((tab) => (tab.key === 'applications' ? { ...tab, count: c?.counts?.applications } : tab))}
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
        {t('Pause automation')}
      </ActionButton>
      {cluster.upgradable && (
        <ActionButton why={override} onClick={() => ask('upgrade')}>
          {t('Upgrade agent')}
        </ActionButton>
      )}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="default" size={28} aria-label={t('More about {{name}}', { name: cluster.name })}>
            <IconDots size={16} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => ask('edit')}>{t('Edit labels and address')}</Menu.Item>
          <Menu.Item renderRoot={(p) => <Link to="/clusters" search={{ enroll: cluster.name }} {...p} />}>
            {t('New join token')}
          </Menu.Item>
          <Menu.Item onClick={() => ask('revoke')}>{t('Cut the agent off')}</Menu.Item>
          <Menu.Item color="red" onClick={() => ask('remove')}>
            {t('Remove the cluster')}
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
        label={t('Heartbeat')}
        title={exact(c.lastSeen)}
        note={c.backlog ? t('{{backlog}} changes wait in the agent', { backlog: c.backlog }) : ''}
      >
        {ago(c.lastSeen, Date.now())}
      </Fact>
      <Fact label={t('Agent')} note={<UpgradeLine upgrade={c.upgrade} />}>
        {c.agentVersion ?? '–'}
      </Fact>
      <Fact label={t('Kubernetes')} note={c.counts ? t('{{apis}} APIs', { apis: c.counts.apis }) : ''}>
        {c.kubeVersion ?? '–'}
      </Fact>
      <Fact
        label={t('Rights')}
        note={c.scope?.project ? t('belongs to project {{project}}', { project: c.scope.project }) : ''}
      >
        {c.scope?.namespaces?.length ? t('{{n}} namespaces', { n: c.scope.namespaces.length }) : t('Every namespace')}
      </Fact>
      <Fact
        label={t('Objects')}
        note={t('{{applications}} applications', { applications: c.counts?.applications ?? 0 })}
      >
        {c.counts?.objects ?? '–'}
      </Fact>
      <Fact
        label={t('Behind by')}
        note={
          c.receipt ? t('equal on both sides {{time}}', { time: ago(c.receipt.at, Date.now()) }) : t('no receipt yet')
        }
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
            {c.refusal.agentVersion
              ? t('{{time}} from {{address}}, agent {{version}}.', {
                  time: exact(c.refusal.at),
                  address: c.refusal.address,
                  version: c.refusal.agentVersion,
                })
              : t('{{time}} from {{address}}.', { time: exact(c.refusal.at), address: c.refusal.address })}
          </Text>
        )}
        {c.quarantine && (
          <>
            <Text size="sm">
              {t('Since {{time}}. The later one came from {{address}}.', {
                time: exact(c.quarantine.since),
                address: c.quarantine.address,
              })}
            </Text>
            <Button size="compact-sm" onClick={() => ask('keep')}>
              {t('Choose which one keeps it')}
            </Button>
          </>
        )}
        {c.rewind && (
          <>
            <Text size="sm">
              {t(
                'The agent has row {{agentSeq}}, the log of the hub ended at row {{hubSeq}}. Nothing is deleted meanwhile.',
                { agentSeq: c.rewind.agentSeq, hubSeq: c.rewind.hubSeq },
              )}
            </Text>
            <Button size="compact-sm" onClick={() => ask('accept-hub')}>
              {t('Accept the state of the hub')}
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
    <section aria-label={t('Applications')}>
      <SectionTitle
        right={
          <Link to="/applications" search={{ q: `cluster:${JSON.stringify(name)}` }}>
            {t('All on this cluster')}
          </Link>
        }
      >
        {t('Applications')}
      </SectionTitle>
      <Screen
        query={apps}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title={t('No application is deployed to this cluster.')}>
              <Rich text="Name it as <code>destination.name</code> of one." parts={{ code: <code /> }} />
            </Nothing>
          ) : undefined
        }
      >
        {(d) => (
          <div className="wide">
            <Table highlightOnHover aria-label={t('Applications on {{name}}', { name })}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Name')}</Table.Th>
                  <Table.Th>{t('State')}</Table.Th>
                  <Table.Th>{t('Why')}</Table.Th>
                  <Table.Th className="second">{t('Drift')}</Table.Th>
                  <Table.Th className="second">{t('Project')}</Table.Th>
                  <Table.Th className="second">{t('Namespace')}</Table.Th>
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
                    <Table.Td className="breakable">{sentence(a.status?.capstan?.headline?.message ?? '')}</Table.Td>
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
    [t('Address'), c.server || t('none: destinations name it by its name')],
    [t('Project'), c.scope?.project || t('none: projects list it among their destinations')],
    [t('Namespaces'), c.scope?.namespaces?.join(', ') || t('all')],
    [
      t('Cluster-scoped objects'),
      !c.scope?.namespaces?.length || c.scope.clusterResources ? t('managed') : t('left alone'),
    ],
    [t('Identity'), c.fingerprint ? `kube-system ${c.fingerprint}` : t('not known before its agent connects')],
    [t('Upgrades by the hub'), c.upgradable ? t('permitted by the owner') : t('not permitted by the owner')],
  ];
  return (
    <section aria-label={t('Limits')}>
      <SectionTitle>{t('Registration')}</SectionTitle>
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
  if (all.length === 0) return <Nothing title={t('No join token was made for this cluster.')} />;
  return (
    <div className="wide">
      <Table aria-label={t('Enrolments')}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Token')}</Table.Th>
            <Table.Th>{t('State')}</Table.Th>
            <Table.Th>{t('Made by')}</Table.Th>
            <Table.Th>{t('Attempts')}</Table.Th>
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
                  ? t('Used {{time}}', { time: exact(e.usedAt) })
                  : Date.parse(e.expiresAt) < Date.now()
                    ? t('Expired {{time}}', { time: exact(e.expiresAt) })
                    : t('Open until {{time}}', { time: exact(e.expiresAt) })}
              </Table.Td>
              <Table.Td>{e.createdBy}</Table.Td>
              <Table.Td>
                {(e.attempts ?? []).map((a) => (
                  <Text size="xs" key={`${a.at} ${a.stage}`} title={exact(a.at)}>
                    {a.stage === 'issued'
                      ? t('Certificate issued, from {{address}}', { address: a.address })
                      : t('Refused ({{stage}}), from {{address}}', { stage: a.stage, address: a.address })}
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
  if (denied) return <Nothing title={t('You may not see who did what here.')}>{denied}</Nothing>;
  return (
    <Screen
      query={events}
      empty={(d) =>
        d.items.length === 0 ? <Nothing title={t('Nobody has done anything to this cluster.')} /> : undefined
      }
    >
      {(d) => (
        <Table aria-label={t('Events')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Time')}</Table.Th>
              <Table.Th>{t('What')}</Table.Th>
              <Table.Th>{t('By')}</Table.Th>
              <Table.Th className="second">{t('Reason')}</Table.Th>
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
