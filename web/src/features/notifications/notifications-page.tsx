import { Alert, Button, Code, Drawer, SegmentedControl, Stack, Table, Text, TextInput } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { count, Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Page } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type Delivery, notificationQueries } from './api';
import { DeliveryDetails } from './delivery-details';
import { lookOf, recipientOf, states } from './model';
import { TryTemplate } from './try-template';

const tabs = [
  { key: 'deliveries', label: t('Deliveries') },
  { key: 'services', label: t('Services') },
  { key: 'triggers', label: t('Triggers') },
  { key: 'templates', label: t('Templates') },
] as const;

/** What was sent to whom about applications, and what decides that. */
export function NotificationsPage() {
  const search = useSearch({ from: '/shell/settings/notifications' });
  const navigate = useNavigate({ from: '/settings/notifications' });
  const set = (change: Partial<Record<'tab' | 'state' | 'app' | 'delivery' | 'try', string | undefined>>) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'deliveries';
  const services = useQuery(notificationQueries.services());
  return (
    <Page
      title={t('Notifications')}
      about={
        <Rich
          text="Set in <code>argocd-notifications-cm</code> and annotations, as in Argo CD. <settings>Settings</settings>"
          parts={{ code: <code />, settings: <Link to="/settings" search={{ q: 'notifications' }} /> }}
        />
      }
      tabs={tabs}
      tab={tab}
      open={(next) => set({ tab: next, try: undefined })}
    >
      {tab === 'deliveries' && (
        <Deliveries
          state={states.find((s) => s === search.state)}
          application={search.app}
          set={set}
          open={(delivery) => set({ delivery })}
        />
      )}
      {tab === 'services' && <Services />}
      {tab === 'triggers' && <Triggers />}
      {tab === 'templates' && <Templates attempt={(name) => set({ try: name })} />}
      <Drawer
        opened={search.delivery !== undefined}
        onClose={() => set({ delivery: undefined })}
        position="right"
        size={560}
        title={t('Delivery')}
      >
        {search.delivery && (
          <DeliveryDetails key={search.delivery} id={search.delivery} open={(delivery) => set({ delivery })} />
        )}
      </Drawer>
      {search.try && (
        <TryTemplate
          key={search.try}
          name={search.try}
          services={(services.data?.items ?? []).map((s) => s.name)}
          close={() => set({ try: undefined })}
          sent={(delivery) => set({ try: undefined, tab: 'deliveries', delivery })}
        />
      )}
    </Page>
  );
}

function Deliveries(props: {
  state: (typeof states)[number] | undefined;
  application: string | undefined;
  set: (change: Partial<Record<'state' | 'app', string | undefined>>) => void;
  open: (id: string) => void;
}) {
  const { state, application, set, open } = props;
  const found = useInfiniteQuery(notificationQueries.deliveries({ state, application }));
  const all = found.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <Stack>
      <div className="query split">
        <TextInput
          aria-label={t('Application')}
          placeholder={t('Application, as argocd/web')}
          defaultValue={application ?? ''}
          onBlur={(e) => set({ app: e.currentTarget.value })}
          onKeyDown={(e) => e.key === 'Enter' && set({ app: e.currentTarget.value })}
        />
        <SegmentedControl
          aria-label={t('State')}
          size="xs"
          value={state ?? ''}
          data={[{ value: '', label: t('Everything') }, ...states.map((s) => ({ value: s, label: lookOf(s).label }))]}
          onChange={(next) => set({ state: next })}
        />
      </div>
      <Screen
        query={found}
        empty={() =>
          all.length === 0 && !found.hasNextPage ? (
            <Nothing title={t('Nothing was sent.')}>
              <Rich
                text="An application subscribes with an annotation, such as <code>notifications.argoproj.io/subscribe.on-sync-failed.slack: channel</code>."
                parts={{ code: <code /> }}
              />
            </Nothing>
          ) : undefined
        }
      >
        {() => (
          <>
            <DeliveryTable all={all} open={open} />
            {found.hasNextPage && (
              <Button variant="default" loading={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
                {t('Look further back')}
              </Button>
            )}
            {found.isFetchNextPageError && <Problem error={found.error} retry={() => void found.fetchNextPage()} />}
          </>
        )}
      </Screen>
    </Stack>
  );
}

function DeliveryTable({ all, open }: { all: Delivery[]; open: (id: string) => void }) {
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('Deliveries')}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('State')}</Table.Th>
            <Table.Th>{t('Application')}</Table.Th>
            <Table.Th>{t('Trigger')}</Table.Th>
            <Table.Th>{t('Recipient')}</Table.Th>
            <Table.Th className="second">{t('Attempts')}</Table.Th>
            <Table.Th className="second">{t('Decided')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {all.map((d) => (
            <Table.Tr key={d.id}>
              <Table.Td>
                <StateMark look={lookOf(d.state)} weight="quiet" hint={d.reason} />
              </Table.Td>
              <Table.Td className="breakable">
                <button type="button" className="name plain" onClick={() => open(d.id ?? '')}>
                  {d.namespace}/{d.name}
                </button>
              </Table.Td>
              <Table.Td>{d.trigger || t('Test message')}</Table.Td>
              <Table.Td className="breakable">{recipientOf(d)}</Table.Td>
              <Table.Td className="second">{d.attempts.length}</Table.Td>
              <Table.Td className="second" title={exact(d.createdAt)}>
                {ago(d.createdAt, Date.now())}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Services() {
  const services = useQuery(notificationQueries.services());
  return (
    <Screen
      query={services}
      empty={(d) =>
        d.items.length === 0 && !d.problems ? (
          <Nothing title={t('There is no service yet.')}>
            <Rich
              text="Set <code>service.slack</code>, or another type, in <code>argocd-notifications-cm</code>."
              parts={{ code: <code /> }}
            />
          </Nothing>
        ) : undefined
      }
    >
      {(d) => (
        <Stack>
          {Object.entries(d.problems ?? {}).map(([key, problem]) => (
            <Alert key={key} color="red" title={key}>
              {problem}
            </Alert>
          ))}
          <Text c="dimmed">{count(d.items.length, '{{n}} service', '{{n}} services')}</Text>
          <Table aria-label={t('Services')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('Name')}</Table.Th>
                <Table.Th>{t('Type')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((s) => (
                <Table.Tr key={s.name}>
                  <Table.Td>{s.name}</Table.Td>
                  <Table.Td>{s.type}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Stack>
      )}
    </Screen>
  );
}

function Triggers() {
  const triggers = useQuery(notificationQueries.triggers());
  return (
    <Screen query={triggers}>
      {(d) => (
        <Stack>
          {d.items.map((x) => (
            <Setting key={x.name} name={x.name} builtin={x.builtin} about={x.description} text={x.text} />
          ))}
        </Stack>
      )}
    </Screen>
  );
}

function Templates({ attempt }: { attempt: (name: string) => void }) {
  const denied = useDenied('settings', 'update');
  const templates = useQuery(notificationQueries.templates());
  return (
    <Screen query={templates}>
      {(d) => (
        <Stack>
          {d.items.map((x) => (
            <Setting
              key={x.name}
              name={x.name}
              builtin={x.builtin}
              text={x.text}
              action={
                <ActionButton
                  variant="default"
                  size="xs"
                  why={denied}
                  aria-label={t('Try {{name}}', { name: x.name })}
                  onClick={() => attempt(x.name)}
                >
                  {t('Try')}
                </ActionButton>
              }
            />
          ))}
        </Stack>
      )}
    </Screen>
  );
}

/** A trigger or a template, whose text unfolds. */
function Setting(props: {
  name: string;
  builtin: boolean;
  about?: string | undefined;
  text?: string | undefined;
  action?: React.ReactNode;
}) {
  const { name, builtin, about, text, action } = props;
  return (
    <section aria-label={name}>
      <Stack gap={2}>
        <div className="line">
          <Text fw={500}>{name}</Text>
          <Text size="xs" c="dimmed">
            {builtin ? t('Every organisation has it') : t('Set in argocd-notifications-cm')}
          </Text>
          {action}
        </div>
        {about && <Text size="sm">{about}</Text>}
        {text && (
          <details>
            <summary>{t('Text')}</summary>
            <Code block tabIndex={0} aria-label={t('Text of {{name}}', { name })}>
              {text}
            </Code>
          </details>
        )}
      </Stack>
    </section>
  );
}
