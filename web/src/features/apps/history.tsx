import { Badge, Button, Code, Group, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useState } from 'react';
import { stringify } from 'yaml';
import type { Application, HistoryEntry } from '../../api/client';
import { useDenied } from '../../api/session';
import { ago, exact, shortRevision, took } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type AppKey, appMutations, appQueries } from './api';
import './history.css';
import { count, number, t } from '../../texts';
import { busy, projectOf } from './model';
import { equal } from './object/patch';
import { text } from './object/read';

/** What was deployed, newest first, and the way back. */
export function History({ appKey, app }: { appKey: AppKey; app: Application }) {
  const history = useQuery(appQueries.history(appKey));
  const denied = useDenied('applications', 'rollback', projectOf(app));
  const [chosen, setChosen] = useState<HistoryEntry>();
  return (
    <Screen
      query={history}
      empty={(d) => (d.items.length === 0 ? <Nothing title={t('Nothing has been deployed yet.')} /> : undefined)}
    >
      {(d) => (
        <>
          <div className="history-wide">
            <Table aria-label={t('History')} className="history-table">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>#</Table.Th>
                  <Table.Th>{t('Revision')}</Table.Th>
                  <Table.Th>{t('Commit')}</Table.Th>
                  <Table.Th>{t('Deployed')}</Table.Th>
                  <Table.Th>{t('Took')}</Table.Th>
                  <Table.Th>{t('By')}</Table.Th>
                  <Table.Th>{t('Reason')}</Table.Th>
                  <Table.Th>{t('Action')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.items.map((h, i) => (
                  <Table.Tr key={h.id}>
                    <Table.Td>{h.id}</Table.Td>
                    <Table.Td>
                      <code>{shortRevision(h.revision)}</code>
                    </Table.Td>
                    <Table.Td maw={320}>
                      <Text size="sm" lineClamp={2} title={h.commit?.message}>
                        {h.commit?.message?.split('\n')[0]}
                      </Text>
                      <Text size="xs" c="dimmed">
                        {h.commit?.author}
                      </Text>
                      <Parameters entry={h} />
                    </Table.Td>
                    <Table.Td title={exact(h.deployedAt)}>
                      {ago(h.deployedAt, Date.now())}
                      <Text size="xs" c="dimmed">
                        {exact(h.deployedAt)}
                      </Text>
                    </Table.Td>
                    <Table.Td>{took(h.deployStartedAt, h.deployedAt)}</Table.Td>
                    <Table.Td>{h.initiatedBy?.automated ? t('automation') : h.initiatedBy?.username}</Table.Td>
                    <Table.Td>{h.reason}</Table.Td>
                    <Table.Td>
                      {i === 0 && (
                        <Badge variant="light" color="teal">
                          {t('Deployed now')}
                        </Badge>
                      )}
                      {i > 0 && (
                        <ActionButton
                          size="xs"
                          variant="light"
                          why={denied || (busy(app) ? t('An operation is in progress.') : '')}
                          onClick={() => setChosen(h)}
                        >
                          {t('Roll back to this')}
                        </ActionButton>
                      )}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
          {chosen && (
            <RollbackDialog
              appKey={appKey}
              app={app}
              entry={chosen}
              denied={denied}
              now={d.items[0]?.id ?? chosen.id}
              close={() => setChosen(undefined)}
            />
          )}
        </>
      )}
    </Screen>
  );
}

/** The sources as they were, with their parameters. */
function Parameters({ entry }: { entry: HistoryEntry }) {
  const source = entry.sources ?? entry.source;
  if (!source) return null;
  return (
    <details>
      <summary>{t('Parameters')}</summary>
      <Code block tabIndex={0}>
        {stringify(source)}
      </Code>
    </details>
  );
}

/** What becomes of automation when an application is rolled back. */
export function afterRollback(app: Application): string {
  if (app.status?.capstan?.automation === 'Manual')
    return t('The application is then paused until Git renders something else, or somebody resumes or syncs.');
  return t(
    'Automation is then paused until Git renders something else, or somebody resumes or syncs. It does not have to be switched off first.',
  );
}

interface RollbackProps {
  appKey: AppKey;
  app: Application;
  entry: HistoryEntry;
  denied: string;
  /** The entry that is deployed now. */
  now: number;
  close: () => void;
}

// It is loaded when a change is looked at.
const FieldsOfChange = lazy(() => import('./diff/fields-of-change'));

interface ObjectChange {
  name: string;
  change: 'created' | 'changed' | 'deleted';
  before: unknown;
  after: unknown;
}

/** What differs between two sets of manifests, object by object. */
export function changesBetween(from: readonly unknown[], to: readonly unknown[]): ObjectChange[] {
  const nameOf = (o: unknown) =>
    [text(o, 'kind'), [text(o, 'metadata.namespace'), text(o, 'metadata.name')].filter(Boolean).join('/')].join(' ');
  const before = new Map(from.map((o) => [nameOf(o), o]));
  const after = new Map(to.map((o) => [nameOf(o), o]));
  const out: ObjectChange[] = [];
  for (const [name, o] of after) {
    const held = before.get(name);
    if (held === undefined) out.push({ name, change: 'created', before: undefined, after: o });
    else if (!equal(held, o)) out.push({ name, change: 'changed', before: held, after: o });
  }
  for (const [name, o] of before)
    if (!after.has(name)) out.push({ name, change: 'deleted', before: o, after: undefined });
  return out;
}

/** So many objects are named before a rollback. */
const previewed = 100;

const signs = { created: '+', changed: '≠', deleted: '−' };
const changeWords = { created: t('created'), changed: t('changed'), deleted: t('deleted') };

/** One object of the plan, and on demand what of it changes. */
function PlannedChange({ change }: { change: ObjectChange }) {
  const [open, setOpen] = useState(false);
  return (
    <li data-change={change.change}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden>{signs[change.change]}</span> {change.name}: {changeWords[change.change]}
      </button>
      {open && (
        <Suspense fallback={<Text size="sm">{t('Loading …')}</Text>}>
          <FieldsOfChange before={change.before} after={change.after} />
        </Suspense>
      )}
    </li>
  );
}

/** Which objects a rollback changes. */
function RollbackPreview({ appKey, entry, now }: { appKey: AppKey; entry: number; now: number }) {
  const then = useQuery(appQueries.manifests(appKey, entry));
  const deployed = useQuery(appQueries.manifests(appKey, now));
  if (then.error || deployed.error)
    return <Text size="sm">{t('What changes cannot be listed: the manifests are not held.')}</Text>;
  if (!then.data || !deployed.data) return <Text size="sm">{t('What changes is compared …')}</Text>;
  const changes = changesBetween(deployed.data.items, then.data.items);
  if (changes.length === 0) return <Text size="sm">{t('Its manifests equal those that are deployed.')}</Text>;
  return (
    <section aria-label={t('What changes')}>
      <Text size="sm" fw={600}>
        {count(changes.length, '{{n}} object changes', '{{n}} objects change')}
      </Text>
      <ul className="rollback-changes">
        {changes.slice(0, previewed).map((c) => (
          <PlannedChange key={c.name} change={c} />
        ))}
        {changes.length > previewed && <li>{t('and {{n}} more', { n: number(changes.length - previewed) })}</li>}
      </ul>
    </section>
  );
}

function RollbackDialog({ appKey, app, entry, denied, now, close }: RollbackProps) {
  const [reason, setReason] = useState('');
  const rollback = useMutation(appMutations.rollback(appKey));
  return (
    <Modal
      opened
      onClose={close}
      size="lg"
      title={t('Roll back to {{revision}}', { revision: shortRevision(entry.revision) })}
    >
      <Stack>
        {rollback.error && <Problem error={rollback.error} />}
        <Text size="sm">
          {t('Re-applies the manifests deployed in history entry {{id}}.', { id: entry.id })} {afterRollback(app)}{' '}
          {t('Resume auto-sync undoes it.')}
        </Text>
        <RollbackPreview appKey={appKey} entry={entry.id} now={now} />
        <TextInput label={t('Reason')} value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t('Cancel')}
          </Button>
          <ActionButton
            why={denied}
            loading={rollback.isPending}
            onClick={() => rollback.mutate({ id: entry.id, reason }, { onSuccess: close })}
          >
            {t('Roll back')}
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
