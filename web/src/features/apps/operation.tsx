import { Table, Text } from '@mantine/core';
import { IconPlayerStop, IconRotateClockwise } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import type { Application, ObjectResult, OperationState, SyncRequest } from '../../api/client';
import { useDenied } from '../../api/session';
import { ago, exact, took } from '../../format/format';
import { count, number, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import type { Tone } from '../../ui/shapes';
import { Nothing, Problem } from '../../ui/states';
import { type AppKey, appMutations, appQueries } from './api';
import { busy, operationKinds, operationWord, phaseWord, projectOf } from './model';
import { Word } from './object/summary-view';
import './sync/sync.css';

/** A phase and wave of an operation with the objects in it. */
export interface Stage {
  title: string;
  results: ObjectResult[];
  tone: Tone;
}

const phases = ['PreSync', 'Sync', 'PostSync', 'SyncFail', 'PostDelete'];

function toneOf(r: ObjectResult): Tone {
  if (r.status === 'SyncFailed' || r.hookPhase === 'Failed' || r.hookPhase === 'Error') return 'failed';
  if (r.hookPhase === 'Running') return 'working';
  return r.status === 'PruneSkipped' ? 'unknown' : 'ok';
}

/** The phases and waves of an operation in their order, failures first in each. */
export function stagesOf(results: readonly ObjectResult[]): Stage[] {
  const groups = new Map<string, ObjectResult[]>();
  const place = (r: ObjectResult) => Math.max(phases.indexOf(r.syncPhase ?? 'Sync'), 0);
  const sorted = [...results].sort((a, b) => place(a) - place(b) || (a.wave ?? 0) - (b.wave ?? 0));
  for (const r of sorted) {
    const title = t('{{phase}}, wave {{wave}}', { phase: r.syncPhase || 'Sync', wave: r.wave ?? 0 });
    groups.set(title, [...(groups.get(title) ?? []), r]);
  }
  return [...groups].map(([title, members]) => {
    const worst = (['failed', 'working', 'ok', 'unknown'] as const).find((item) =>
      members.some((r) => toneOf(r) === item),
    );
    const failedFirst = [...members].sort((a, b) => Number(toneOf(b) === 'failed') - Number(toneOf(a) === 'failed'));
    return { title, results: failedFirst, tone: worst ?? 'unknown' };
  });
}

/** The request that repeats an operation as it was asked for. */
export function repeated(op: OperationState): SyncRequest {
  const s = op.operation?.sync;
  return {
    prune: s?.prune ?? false,
    dryRun: s?.dryRun ?? false,
    ...(s?.syncOptions?.length ? { syncOptions: s.syncOptions } : {}),
    ...(s?.resources?.length ? { resources: s.resources } : {}),
    reason: `again: ${op.reason || 'the operation before failed'}`.slice(0, 1000),
  };
}

/** The newest operation, step by step, and the attempts before it. */
export function Operation({ appKey, app }: { appKey: AppKey; app: Application }) {
  const op = app.status?.operationState;
  if (!op) return <Nothing title={t('Nothing has been deployed yet.')} />;
  return (
    <div className="operation">
      <OperationHead appKey={appKey} app={app} op={op} />
      <Stages results={op.syncResult?.resources ?? []} running={busy(app)} />
      <Attempts appKey={appKey} newest={op.id} />
    </div>
  );
}

/** When an operation began, and what became of it. */
function timesOf(op: OperationState, running: boolean): string {
  const { startedAt, finishedAt, healthyAt, deadline, retryAt } = op;
  return [
    t('Started {{time}}', { time: exact(startedAt) }),
    finishedAt && t('ended {{time}} after {{took}}', { time: exact(finishedAt), took: took(startedAt, finishedAt) }),
    healthyAt && t('healthy {{time}}', { time: exact(healthyAt) }),
    running && deadline && t('ends at the latest {{time}}', { time: exact(deadline) }),
    retryAt && t('tried again {{time}}', { time: exact(retryAt) }),
  ]
    .filter(Boolean)
    .join(', ');
}

function OperationHead({ appKey, app, op }: { appKey: AppKey; app: Application; op: OperationState }) {
  const denied = useDenied('applications', 'sync', projectOf(app));
  const terminate = useMutation(appMutations.terminate(appKey));
  const again = useMutation(appMutations.sync(appKey));
  const word = operationWord(app);
  const running = busy(app);
  const failed = op.phase === 'Failed' || op.phase === 'Error';
  return (
    <>
      <div className="op-head">
        <Word tone={word.tone}>{word.word}</Word>
        <span className="breakable">{word.detail}</span>
        <span className="op-does">
          {running && (
            <ActionButton
              size="xs"
              variant="light"
              color="red"
              leftSection={<IconPlayerStop size={14} aria-hidden />}
              why={denied}
              loading={terminate.isPending}
              onClick={() => terminate.mutate()}
            >
              {t('Terminate the operation')}
            </ActionButton>
          )}
          {failed && op.kind === 'sync' && !op.operation?.sync?.local && (
            <ActionButton
              size="xs"
              variant="default"
              leftSection={<IconRotateClockwise size={14} aria-hidden />}
              why={denied}
              loading={again.isPending}
              onClick={() => again.mutate(repeated(op))}
            >
              {t('Retry with the same options')}
            </ActionButton>
          )}
        </span>
      </div>
      {again.error && <Problem error={again.error} />}
      <Text size="sm" c="dimmed" mb="md">
        {timesOf(op, running)}
        {op.reason ? ` – ${op.reason}` : ''}
      </Text>
    </>
  );
}

/** So many objects of a stage are listed. */
const listed = 100;

function Stages({ results, running }: { results: ObjectResult[]; running: boolean }) {
  const stages = stagesOf(results);
  if (stages.length === 0) {
    return <p className="quiet">{running ? t('The agent has begun no step yet.') : t('No object was touched.')}</p>;
  }
  return (
    <ol className="op-steps" aria-label={t('Phases and waves')}>
      {stages.map((s) => (
        <li key={s.title} data-tone={s.tone}>
          <h4>
            {s.title}
            <span className="quiet">
              {count(s.results.length, '{{n}} object', '{{n}} objects')}
              {s.tone === 'failed'
                ? `, ${t('{{n}} failed', { n: number(s.results.filter((r) => toneOf(r) === 'failed').length) })}`
                : ''}
            </span>
          </h4>
          <div className="wide">
            <Table aria-label={s.title}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Object')}</Table.Th>
                  <Table.Th>{t('Result')}</Table.Th>
                  <Table.Th>{t('Message')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {s.results.slice(0, listed).map((r) => (
                  <Table.Tr key={[r.group, r.kind, r.namespace, r.name, r.syncPhase].join('/')}>
                    <Table.Td>
                      {r.kind} {r.namespace ? `${r.namespace}/` : ''}
                      {r.name}
                      {r.hookType ? ` · ${t('{{type}} hook', { type: r.hookType })}` : ''}
                    </Table.Td>
                    <Table.Td>
                      <Word tone={toneOf(r)}>{r.hookPhase ? phaseWord(r.hookPhase) : r.status}</Word>
                    </Table.Td>
                    <Table.Td className="breakable">{r.message}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
          {s.results.length > listed && (
            <p className="quiet">{t('{{n}} more objects.', { n: number(s.results.length - listed) })}</p>
          )}
        </li>
      ))}
    </ol>
  );
}

/** The operations before the newest, which stay. */
function Attempts({ appKey, newest }: { appKey: AppKey; newest: string }) {
  const operations = useQuery(appQueries.operations(appKey));
  const before = (operations.data ?? []).filter((o) => o.id !== newest);
  if (operations.error && !operations.data) {
    return <Problem error={operations.error} retry={() => void operations.refetch()} />;
  }
  if (before.length === 0) return null;
  return (
    <section aria-label={t('Earlier operations')}>
      <h3>{t('Earlier operations')}</h3>
      <div className="wide">
        <Table aria-label={t('Earlier operations')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Kind')}</Table.Th>
              <Table.Th>{t('Result')}</Table.Th>
              <Table.Th>{t('Started')}</Table.Th>
              <Table.Th>{t('Took')}</Table.Th>
              <Table.Th>{t('By')}</Table.Th>
              <Table.Th>{t('Message')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {before.map((o) => (
              <Table.Tr key={o.id}>
                <Table.Td>{o.operation?.sync?.dryRun ? t('dry run') : operationKinds[o.kind]}</Table.Td>
                <Table.Td>
                  <Word
                    tone={
                      o.phase === 'Succeeded'
                        ? 'ok'
                        : o.phase === 'Failed' || o.phase === 'Error'
                          ? 'failed'
                          : 'working'
                    }
                  >
                    {phaseWord(o.phase)}
                  </Word>
                </Table.Td>
                <Table.Td title={exact(o.startedAt)}>{ago(o.startedAt, Date.now())}</Table.Td>
                <Table.Td>{took(o.startedAt, o.finishedAt)}</Table.Td>
                <Table.Td>
                  {o.operation?.initiatedBy?.automated ? t('automation') : o.operation?.initiatedBy?.username}
                </Table.Td>
                <Table.Td className="breakable">{[o.reason, o.message].filter(Boolean).join(' – ')}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </section>
  );
}
