import { Alert, Button, Checkbox, Group, Progress as Meter, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { type ReactElement, useState } from 'react';
import { sentence } from '../../../api/errors';
import { useDenied } from '../../../api/session';
import { count, number, Rich, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Problem, Screen } from '../../../ui/states';
import { type Bulk, type BulkAction, type BulkRequest, bulkMutations, bulkQueries, type Row } from './api';
import { keyOf } from './columns';

/** Which applications are chosen: some by name, or all that the query has. */
export interface Picked {
  all: boolean;
  names: readonly string[];
}

export const nonePicked: Picked = { all: false, names: [] };

export const isPicked = (picked: Picked, row: Row) => picked.all || picked.names.includes(keyOf(row));

/** How many can be chosen one by one; more are chosen by the filter. */
const mostNames = 5_000;

/** Chooses one application. Where all that match are chosen, single ones cannot be left out: the filter can. */
export function Pick({ row, picked, setPicked }: { row: Row; picked: Picked; setPicked: (picked: Picked) => void }) {
  const key = keyOf(row);
  const on = isPicked(picked, row);
  return (
    <Checkbox
      size="xs"
      className="pick"
      aria-label={t('Select {{name}}', { name: row.name })}
      checked={on}
      disabled={picked.all || (!on && picked.names.length >= mostNames)}
      onChange={() =>
        setPicked({ all: false, names: on ? picked.names.filter((n) => n !== key) : [...picked.names, key] })
      }
    />
  );
}

/** Chooses all applications that the query has, also those that are not read. */
export function PickAll(props: { picked: Picked; setPicked: (picked: Picked) => void; total: number }) {
  const { picked, setPicked, total } = props;
  return (
    <Checkbox
      size="xs"
      className="pick"
      aria-label={t('Select all {{total}} that match', { total })}
      checked={picked.all}
      indeterminate={!picked.all && picked.names.length > 0}
      onChange={() => setPicked(picked.all ? nonePicked : { all: true, names: [] })}
    />
  );
}

const rights: Record<BulkAction, string> = {
  sync: 'sync',
  refresh: 'get',
  pause: 'update',
  resume: 'update',
  delete: 'delete',
};

interface Words {
  title: string;
  act: string;
  actOn: (n: number) => string;
  /** What becomes of applications, which are an element. */
  will: (apps: ReactElement) => ReactElement;
  done: string;
}

const words: Record<BulkAction, Words> = {
  sync: {
    title: t('Sync'),
    act: t('Sync'),
    actOn: (n) => count(n, 'Sync {{n}} application', 'Sync {{n}} applications'),
    will: (apps) => <Rich text="<apps/> will be synced." parts={{ apps }} />,
    done: t('Syncs that have begun'),
  },
  refresh: {
    title: t('Refresh'),
    act: t('Refresh'),
    actOn: (n) => count(n, 'Refresh {{n}} application', 'Refresh {{n}} applications'),
    will: (apps) => <Rich text="<apps/> will be refreshed." parts={{ apps }} />,
    done: t('Refreshes asked for'),
  },
  pause: {
    title: t('Pause automation'),
    act: t('Pause'),
    actOn: (n) => count(n, 'Pause {{n}} application', 'Pause {{n}} applications'),
    will: (apps) => (
      <Rich text="<apps/> will be paused: nothing new is applied until they are resumed." parts={{ apps }} />
    ),
    done: t('Paused'),
  },
  resume: {
    title: t('Resume automation'),
    act: t('Resume'),
    actOn: (n) => count(n, 'Resume {{n}} application', 'Resume {{n}} applications'),
    will: (apps) => <Rich text="<apps/> will be resumed: they follow Git again." parts={{ apps }} />,
    done: t('Resumed'),
  },
  delete: {
    title: t('Delete'),
    act: t('Delete'),
    actOn: (n) => count(n, 'Delete {{n}} application', 'Delete {{n}} applications'),
    will: (apps) => <Rich text="<apps/> will be deleted." parts={{ apps }} />,
    done: t('Deletions that have begun'),
  },
};

const actions: BulkAction[] = ['sync', 'refresh', 'pause', 'resume', 'delete'];

const many = (n: number) => count(n, '{{n}} application', '{{n}} applications');

/** What can be done to the applications that are chosen. */
export function BulkBar(props: {
  picked: Picked;
  query: string;
  total: number;
  clear: () => void;
  begun: (id: string) => void;
}) {
  const { picked, query, total, clear, begun } = props;
  const [asked, setAsked] = useState<BulkAction>();
  if (!picked.all && picked.names.length === 0) return null;
  return (
    <section className="bulk-bar" aria-label={t('Do to the selected applications')}>
      <span aria-live="polite">
        {picked.all ? (
          <b>{t('All {{n}} that match', { n: number(total) })}</b>
        ) : (
          <Rich
            text="<b><n/> selected</b> of <total/>"
            parts={{ b: <b />, n: <>{picked.names.length}</>, total: <>{number(total)}</> }}
          />
        )}
      </span>
      {actions.map((action) => (
        <Act key={action} action={action} ask={setAsked} />
      ))}
      <Button variant="subtle" color="gray" onClick={clear}>
        {t('Clear selection')}
      </Button>
      {asked && (
        <Ask
          action={asked}
          choice={picked.all ? (query ? { query } : { all: true }) : { names: [...picked.names] }}
          close={() => setAsked(undefined)}
          begun={(id) => {
            setAsked(undefined);
            clear();
            begun(id);
          }}
        />
      )}
    </section>
  );
}

function Act({ action, ask }: { action: BulkAction; ask: (action: BulkAction) => void }) {
  const why = useDenied('applications', rights[action]);
  return (
    <ActionButton
      why={why}
      variant={action === 'sync' ? 'filled' : 'default'}
      {...(action === 'delete' ? { color: 'red' } : {})}
      onClick={() => ask(action)}
    >
      {words[action].act}
    </ActionButton>
  );
}

/** Says what would be done before it is. */
function Ask(props: {
  action: BulkAction;
  choice: Choice<BulkRequest, 'query' | 'names' | 'all'>;
  close: () => void;
  begun: (id: string) => void;
}) {
  const { action, choice, close, begun } = props;
  const [on, setOn] = useState(action === 'delete');
  const [typed, setTyped] = useState('');
  const [reason, setReason] = useState('');
  const request: BulkRequest = { action, ...choice };
  const plan = useQuery(bulkQueries.plan(request));
  const start = useMutation(bulkMutations.start());
  const options: Partial<BulkRequest> =
    action === 'sync'
      ? { prune: on }
      : action === 'refresh'
        ? { hard: on }
        : action === 'delete'
          ? { cascade: on }
          : {};
  const n = plan.data?.counts.pending ?? 0;
  const sure = action !== 'delete' || typed === String(n);
  return (
    <Modal opened onClose={close} title={t('{{title}}: what will be done', { title: words[action].title })} size="lg">
      <Screen query={plan}>
        {(d) => (
          <Stack>
            {start.error != null && <Problem error={start.error} />}
            <Text>{words[action].will(<b>{many(n)}</b>)}</Text>
            <Refused bulk={d} />
            {action === 'sync' && (
              <Checkbox
                label={t('Also delete what Git no longer has (prune)')}
                checked={on}
                onChange={(e) => setOn(e.currentTarget.checked)}
              />
            )}
            {action === 'refresh' && (
              <Checkbox
                label={t('Render anew even if nothing has changed (hard)')}
                checked={on}
                onChange={(e) => setOn(e.currentTarget.checked)}
              />
            )}
            {action === 'delete' && (
              <>
                <Checkbox
                  label={t('Also delete their objects in the clusters (cascade)')}
                  checked={on}
                  onChange={(e) => setOn(e.currentTarget.checked)}
                />
                <TextInput
                  label={t('Type {{n}} to go on', { n })}
                  autoComplete="off"
                  value={typed}
                  onChange={(e) => setTyped(e.currentTarget.value)}
                />
              </>
            )}
            {action !== 'refresh' && action !== 'delete' && (
              <TextInput
                label={t('Reason, for the activity')}
                maxLength={1000}
                value={reason}
                onChange={(e) => setReason(e.currentTarget.value)}
              />
            )}
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                {t('Cancel')}
              </Button>
              <Button
                disabled={n === 0 || !sure}
                loading={start.isPending}
                {...(action === 'delete' ? { color: 'red', variant: 'outline' } : {})}
                onClick={() =>
                  start.mutate(
                    { ...request, ...options, ...(reason ? { reason } : {}) },
                    { onSuccess: (b) => b.id && begun(b.id) },
                  )
                }
              >
                {words[action].actOn(n)}
              </Button>
            </Group>
          </Stack>
        )}
      </Screen>
    </Modal>
  );
}

type Choice<T, K extends keyof T> = { [P in K]?: T[P] };

/** What the caller may not do, with the reasons. */
function Refused({ bulk }: { bulk: Bulk }) {
  const refused = (bulk.items ?? []).filter((i) => i.state === 'refused');
  const n = bulk.counts.refused;
  if (n === 0) return null;
  return (
    <Alert
      color="yellow"
      title={count(n, '{{n}} application will be left as they are', '{{n}} applications will be left as they are')}
    >
      <Items items={refused} />
      {n > refused.length && <Text size="sm">{t('and {{n}} more', { n: n - refused.length })}</Text>}
    </Alert>
  );
}

function Items({ items }: { items: NonNullable<Bulk['items']> }) {
  return (
    <ul className="bulk-items">
      {items.map((i) => (
        <li key={`${i.namespace}/${i.name}`}>
          <b>{i.name}</b> {sentence(i.message ?? '')}
        </li>
      ))}
    </ul>
  );
}

/** How far a request is. It goes on when this is closed. */
export function Progress({ id, close }: { id: string; close: () => void }) {
  const bulk = useQuery(bulkQueries.one(id));
  const cancel = useMutation(bulkMutations.cancel(id));
  return (
    <Modal
      opened
      onClose={close}
      title={bulk.data ? `${words[bulk.data.action].title}: ${many(bulk.data.total)}` : t('Progress')}
      size="lg"
    >
      <Screen query={bulk}>
        {(b) => {
          const { pending, done, refused, failed, cancelled } = b.counts;
          const gone = b.total - pending;
          return (
            <Stack>
              <Meter
                value={b.total > 0 ? (gone / b.total) * 100 : 100}
                aria-label={t('{{gone}} of {{total}} are done', { gone, total: b.total })}
              />
              <Text aria-live="polite">
                {b.cancelled
                  ? sentence(b.cancelled)
                  : b.finishedAt
                    ? t('All are done.')
                    : t('{{n}} of {{n2}} are done …', {
                        n: number(gone),
                        n2: number(b.total),
                      })}
              </Text>
              <dl className="facts-list bulk-counts">
                <dt>{words[b.action].done}</dt>
                <dd>{done}</dd>
                {failed > 0 && (
                  <>
                    <dt>{t('Failed')}</dt>
                    <dd>{failed}</dd>
                  </>
                )}
                {refused > 0 && (
                  <>
                    <dt>{t('Not permitted')}</dt>
                    <dd>{refused}</dd>
                  </>
                )}
                {cancelled > 0 && (
                  <>
                    <dt>{t('Cancelled')}</dt>
                    <dd>{cancelled}</dd>
                  </>
                )}
              </dl>
              {(b.items ?? []).length > 0 && <Items items={b.items ?? []} />}
              <Group justify="flex-end">
                {!b.finishedAt && (
                  <Button variant="default" loading={cancel.isPending} onClick={() => cancel.mutate()}>
                    {t('Cancel the rest')}
                  </Button>
                )}
                <Button onClick={close}>{t('Close')}</Button>
              </Group>
            </Stack>
          );
        }}
      </Screen>
    </Modal>
  );
}
