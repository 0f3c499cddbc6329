import { Alert, Anchor, Stack, Table, Text } from '@mantine/core';
import { IconRefresh } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { sentence } from '../../../api/errors';
import { useDenied } from '../../../api/session';
import { ago, exact } from '../../../format/format';
import { Rich, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { HealthBadge, type Look, StateMark } from '../../../ui/badges';
import { Fact, Labels, Page, SectionTitle } from '../../../ui/page';
import { Nothing, Screen } from '../../../ui/states';
import { type ApplicationSet, setMutations, setQueries } from './api';
import { Held } from './held';
import type { SetKey } from './keys';
import { Members } from './members';
import { type Condition, generatorsOf, problemsOf, projectOfSet, rolloutOf, writableSet } from './model';
import { Parameters } from './parameters';
import { Remove } from './remove';
import { RolloutStrip } from './rollout';
import type { SetSearch } from './search';
import { SaveSet } from './write';
import './sets.css';

const tabs = [
  { key: 'applications', label: t('Applications') },
  { key: 'parameters', label: t('Parameters') },
  { key: 'edit', label: t('Edit and preview') },
  { key: 'events', label: t('Events') },
] as const;

/** One ApplicationSet: what it has made, how its rollout goes, and what a change of it would do. */
export function SetPage() {
  const key = useParams({ from: '/shell/applicationsets/$namespace/$name' });
  const search = useSearch({ from: '/shell/applicationsets/$namespace/$name' });
  const navigate = useNavigate({ from: '/applicationsets/$namespace/$name' });
  const go = (change: SetSearch) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const set = useQuery(setQueries.one(key));
  const project = projectOfSet(set.data);
  const seen = useDenied('applicationsets', 'get', project);
  const noDelete = useDenied('applicationsets', 'delete', project);
  const refresh = useMutation(setMutations.refresh(key));
  const tab = tabs.find((x) => x.key === search.tab)?.key ?? 'applications';
  return (
    <Page
      title={key.name}
      about={set.data && <Origin set={set.data} />}
      facts={set.data && <Facts set={set.data} />}
      actions={
        <>
          <ActionButton
            variant="default"
            leftSection={<IconRefresh size={16} aria-hidden />}
            why={seen}
            loading={refresh.isPending}
            onClick={() => refresh.mutate()}
          >
            {t('Refresh')}
          </ActionButton>
          <ActionButton why={noDelete} variant="outline" color="red" onClick={() => go({ ask: 'remove' })}>
            {t('Delete')}
          </ActionButton>
        </>
      }
      tabs={tabs.map((x) => (x.key === 'applications' ? { ...x, count: set.data?.status?.resourcesCount } : x))}
      tab={tab}
      open={(next) => go({ tab: next === 'applications' ? undefined : next })}
    >
      <Screen query={set}>
        {(s) => (
          <Stack>
            {s.status?.capstan?.deleting && (
              <Alert color="blue" role="status" title={t('It is being deleted, after its applications.')} />
            )}
            <Held set={s} setKey={key} ask={search.ask === 'approve'} go={go} />
            {tab === 'applications' && <Applications set={s} search={search} go={go} />}
            {tab === 'parameters' && <Parameters set={writableSet(s)} />}
            {tab === 'edit' && <SaveSet setKey={key} stored={s} show={search.show} go={go} />}
            {tab === 'events' && <Events setKey={key} />}
          </Stack>
        )}
      </Screen>
      {search.ask === 'remove' && set.data && (
        <Remove
          set={set.data}
          setKey={key}
          denied={noDelete}
          close={() => go({ ask: undefined })}
          gone={() => void navigate({ to: '/applicationsets' })}
        />
      )}
    </Page>
  );
}

/** The application that renders the set. */
function Origin({ set }: { set: ApplicationSet }) {
  const parent = set.status?.capstan?.parent;
  if (!parent) return null;
  return (
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
  );
}

function Facts({ set }: { set: ApplicationSet }) {
  const st = set.status;
  const project = projectOfSet(set);
  return (
    <div className="set-facts">
      <Fact label={t('Health')}>
        <HealthBadge status={st?.health?.status} cause={st?.health?.message} />
      </Fact>
      <Fact label={t('Project')}>
        {project === '*' ? (
          t('its template decides')
        ) : (
          <Link to="/projects/$name" params={{ name: project }}>
            {project}
          </Link>
        )}
      </Fact>
      <Fact label={t('Generators')}>{generatorsOf(set.spec).join(', ') || t('none')}</Fact>
      <Fact label={t('Generated')} title={exact(st?.capstan?.generatedAt)}>
        {ago(st?.capstan?.generatedAt, Date.now())}
      </Fact>
      {set.metadata.labels && (
        <Fact label={t('Labels')}>
          <Labels labels={set.metadata.labels} />
        </Fact>
      )}
    </div>
  );
}

function Applications({ set, search, go }: { set: ApplicationSet; search: SetSearch; go: (c: SetSearch) => void }) {
  const rollout = rolloutOf(set);
  return (
    <>
      {problemsOf(set)
        .filter((c) => c.type !== 'DeletionHeld')
        .map((c) => (
          <Alert key={c.type} color="red" role="alert" title={c.type}>
            {sentence(c.message)}
          </Alert>
        ))}
      {rollout && <RolloutStrip rollout={rollout} namespace={set.metadata.namespace ?? 'argocd'} />}
      <Members set={set} rollout={rollout} search={search} go={go} />
      <Conditions conditions={set.status?.conditions ?? []} />
    </>
  );
}

const conditionLook = (c: Condition): Look => {
  if (c.status === 'Unknown') return { label: t('Unknown'), tone: 'unknown', shape: 'unknown' };
  const yes = c.status === 'True';
  const good = c.type === 'ParametersGenerated' || c.type === 'ResourcesUpToDate';
  const label = yes ? t('yes') : t('no');
  if (c.type === 'RolloutProgressing')
    return { label, tone: yes ? 'working' : 'unknown', shape: yes ? 'progressing' : 'absent' };
  if (yes === good) return { label, tone: 'ok', shape: 'done' };
  return { label, tone: good ? 'attention' : 'failed', shape: 'failed' };
};

function Conditions({ conditions }: { conditions: readonly Condition[] }) {
  if (conditions.length === 0) return null;
  return (
    <section aria-label={t('Conditions')}>
      <SectionTitle count={conditions.length}>{t('Conditions')}</SectionTitle>
      <div className="wide">
        <Table aria-label={t('Conditions')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Condition')}</Table.Th>
              <Table.Th>{t('State')}</Table.Th>
              <Table.Th>{t('Message')}</Table.Th>
              <Table.Th className="second">{t('Since')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {conditions.map((c) => (
              <Table.Tr key={c.type}>
                <Table.Td>{c.type}</Table.Td>
                <Table.Td>
                  <StateMark look={conditionLook(c)} weight="quiet" />
                </Table.Td>
                <Table.Td className="breakable">{sentence(c.message)}</Table.Td>
                <Table.Td className="second" title={exact(c.lastTransitionTime)}>
                  {ago(c.lastTransitionTime, Date.now())}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </section>
  );
}

function Events({ setKey }: { setKey: SetKey }) {
  const events = useQuery(setQueries.events(setKey));
  return (
    <Screen
      query={events}
      empty={(d) => (d.length === 0 ? <Nothing title={t('Nobody has changed this ApplicationSet.')} /> : undefined)}
    >
      {(d) => (
        <Table aria-label={t('Events')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Time')}</Table.Th>
              <Table.Th>{t('What')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {d.map((e) => (
              <Table.Tr key={`${e.lastSeen} ${e.message}`}>
                <Table.Td title={exact(e.lastSeen)}>{ago(e.lastSeen, Date.now())}</Table.Td>
                <Table.Td>
                  <Text size="sm" className="breakable" {...(e.type === 'Warning' ? { c: 'red' } : {})}>
                    {e.message}
                  </Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Screen>
  );
}
