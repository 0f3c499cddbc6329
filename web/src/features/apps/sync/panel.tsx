import { Alert, Button, Checkbox, Drawer, NumberInput, SegmentedControl, Switch, TextInput } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import type { Application, ObjectDiff } from '../../../api/client';
import { useDenied } from '../../../api/session';
import { shortRevision } from '../../../format/format';
import { count, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Problem, Screen } from '../../../ui/states';
import { type AppKey, appMutations, appQueries } from '../api';
import { actionSigns, actionWords } from '../diff/action';
import { projectOf } from '../model';
import { at, text } from '../object/read';
import { referenceOf } from '../object/reference';
import { Commit } from '../source';
import {
  type Choice,
  deletesAll,
  lastChoice,
  notesOn,
  options,
  rememberChoice,
  requestOf,
  type Step,
  stepsOf,
} from './choice';
import './sync.css';

interface Props {
  appKey: AppKey;
  app: Application;
  opened: boolean;
  close: () => void;
  /** The sync has started. */
  started: () => void;
}

/** What a sync would do, how it is done, and its start. */
export function SyncPanel(props: Props) {
  const { app, opened, close } = props;
  return (
    <Drawer
      opened={opened}
      onClose={close}
      position="right"
      size="920px"
      title={t('Sync {{name}}', { name: app.metadata.name })}
      classNames={{ body: 'sync-body' }}
    >
      <Contents {...props} />
    </Drawer>
  );
}

function Contents({ appKey, app, close, started }: Props) {
  const id = `${appKey.namespace}/${appKey.name}`;
  const [choice, setChoice] = useState(() => lastChoice(id, app.spec.syncPolicy?.automated?.prune ?? false));
  const [revision, setRevision] = useState('');
  const [all, setAll] = useState(false);
  const set = (change: Partial<Choice>) => setChoice((held) => ({ ...held, ...change }));
  // A revision is looked at when its writer rests.
  useEffect(() => {
    const timer = setTimeout(() => setRevision(choice.revision.trim()), 400);
    return () => clearTimeout(timer);
  }, [choice.revision]);
  const plan = useQuery(appQueries.plan(appKey, revision));
  const tree = useQuery(appQueries.tree(appKey));
  const denied = useDenied('applications', 'sync', projectOf(app));
  const sync = useMutation(appMutations.sync(appKey));
  const items = plan.data?.items ?? [];
  const nodes = tree.data?.nodes ?? [];
  const waves = new Map(nodes.map((n) => [referenceOf(n), n.syncWave ?? 0]));
  const steps = stepsOf(items, waves, choice);
  const managed = nodes.filter((n) => n.managed && !n.hook).length;
  const everything = plan.data !== undefined && deletesAll(steps, managed);
  const changes = steps.filter((s) => !s.left).length;
  const notes = notesOn(choice, steps);
  const barred =
    denied ||
    (choice.selection === 'picked' && choice.picked.length === 0 ? t('No object is picked.') : '') ||
    (everything && !all ? t('It would delete all objects of the application; confirm that first.') : '');
  const start = () => {
    rememberChoice(id, choice);
    sync.mutate(requestOf({ ...choice, revision: choice.revision.trim() }, items), { onSuccess: started });
  };
  return (
    <>
      <div className="sync-columns">
        <section className="sync-plan" aria-label={t('Plan')}>
          <PlanHead app={app} steps={steps} loading={plan.isPending} />
          {everything && (
            <Alert
              color="red"
              icon={<IconAlertTriangle aria-hidden />}
              title={t('All objects would be deleted')}
              role="alert"
            >
              <Checkbox
                label={t('Delete all {{managed}} objects of {{name}}', { managed, name: app.metadata.name })}
                checked={all}
                onChange={(e) => setAll(e.currentTarget.checked)}
              />
            </Alert>
          )}
          <Screen query={plan}>{() => <Plan steps={steps} managed={managed} choice={choice} set={set} />}</Screen>
        </section>
        <Options appKey={appKey} app={app} choice={choice} set={set} drifted={items.length} managed={managed} />
      </div>
      {notes.length > 0 && (
        <ul className="sync-notes" aria-label={t('Without effect')}>
          {notes.map((n) => (
            <li key={n}>{n}</li>
          ))}
        </ul>
      )}
      {sync.error && <Problem error={sync.error} />}
      <footer className="sync-foot">
        <span className="quiet">
          {app.status?.capstan?.paused ? t('A sync ends the pause.') : t('Attempts are kept under Last operation.')}
        </span>
        <Button variant="default" onClick={close}>
          {t('Cancel')}
        </Button>
        <ActionButton why={barred} onClick={start} loading={sync.isPending}>
          {choice.dryRun
            ? t('Start dry run')
            : changes > 0 && plan.data
              ? count(changes, 'Start sync of {{n}} change', 'Start sync of {{n}} changes')
              : t('Start sync')}
        </ActionButton>
      </footer>
    </>
  );
}

function PlanHead({ app, steps, loading }: { app: Application; steps: Step[]; loading: boolean }) {
  const sum = (action: Step['action']) => steps.filter((s) => s.action === action && !s.left).length;
  const all = steps.filter((s) => s.action === 'delete').length;
  const [created, changed, deleted] = [sum('create'), sum('change'), sum('delete')];
  return (
    <header className="sync-head">
      <b>{t('Plan')}</b>
      {loading ? (
        <span className="quiet" role="status">
          {t('The cluster dry-runs the changes …')}
        </span>
      ) : (
        <span role="status">
          {all > deleted
            ? t('{{created}} created, {{changed}} changed, {{deleted}} of {{all}} deleted', {
                created,
                changed,
                deleted,
                all,
              })
            : t('{{created}} created, {{changed}} changed, {{deleted}} deleted', { created, changed, deleted })}
        </span>
      )}
      <span className="quiet">
        {t('to {{cluster}} / {{namespace}}', {
          cluster: app.status?.capstan?.cluster ?? t('the destination'),
          namespace: app.spec.destination?.namespace ?? t('its namespaces'),
        })}
      </span>
    </header>
  );
}

interface PlanProps {
  steps: Step[];
  managed: number;
  choice: Choice;
  set: (change: Partial<Choice>) => void;
}

/** So many steps are listed; the diff has all. */
const listed = 300;

function Plan({ steps, managed, choice, set }: PlanProps) {
  if (steps.length === 0) {
    return (
      <p className="quiet">
        {t('Nothing differs: {{n}} objects stay as they are, and hooks run again.', { n: managed })}
      </p>
    );
  }
  const groups = new Map<string, Step[]>();
  for (const s of steps.slice(0, listed)) {
    const title = s.action === 'delete' ? t('Deletions') : t('Wave {{wave}}', { wave: s.wave });
    groups.set(title, [...(groups.get(title) ?? []), s]);
  }
  const pick = (id: string) => {
    const now = choice.selection === 'picked' ? choice.picked : steps.filter((s) => !s.left).map((s) => s.id);
    set({ selection: 'picked', picked: now.includes(id) ? now.filter((p) => p !== id) : [...now, id] });
  };
  return (
    <>
      {[...groups].map(([title, members]) => (
        <section key={title} aria-label={title}>
          <h4>
            {title} <span className="quiet">{members.length}</span>
          </h4>
          <ul className="sync-steps">
            {members.map((s) => (
              <StepRow key={s.id} step={s} pick={() => pick(s.id)} />
            ))}
          </ul>
        </section>
      ))}
      {steps.length > listed && (
        <p className="quiet">{t('{{n}} more changes are in the diff.', { n: steps.length - listed })}</p>
      )}
      <p className="quiet">
        {t('{{n}} objects stay as they are.', {
          n: Math.max(managed - steps.filter((s) => s.action === 'change').length, 0),
        })}
      </p>
    </>
  );
}

const fieldsShown = 6;

function StepRow({ step, pick }: { step: Step; pick: () => void }) {
  const { object, action } = step;
  const fields = action === 'change' ? (object.fields ?? []) : [];
  return (
    <li data-action={action} data-left={step.left}>
      <Checkbox
        size="xs"
        checked={!step.left}
        onChange={pick}
        aria-label={t('{{action}} {{kind}} {{name}}', {
          action: actionWords[action],
          kind: object.kind,
          name: object.name,
        })}
      />
      <span className="sync-action">
        <span aria-hidden>{actionSigns[action]}</span> {actionWords[action]}
      </span>
      <span className="sync-name">
        {object.name} <span className="quiet">{object.kind}</span>
      </span>
      {object.problem && (
        <p className="sync-problem">{t('The API server would refuse it: {{problem}}', { problem: object.problem })}</p>
      )}
      {fields.length > 0 && (
        <dl className="sync-fields mono">
          {fields.slice(0, fieldsShown).map((f) => (
            <Field key={f} path={f} object={object} />
          ))}
          {fields.length > fieldsShown && (
            <dt className="quiet">{t('and {{n}} more fields', { n: fields.length - fieldsShown })}</dt>
          )}
        </dl>
      )}
    </li>
  );
}

function Field({ path, object }: { path: string; object: ObjectDiff }) {
  const before = text(at(object.live, path));
  const after = text(at(object.desired, path));
  return (
    <>
      <dt className="breakable">{path}</dt>
      <dd className="breakable">
        {before && <del>{before}</del>} {before && after && '→'} {after && <ins>{after}</ins>}
      </dd>
    </>
  );
}

interface OptionsProps {
  appKey: AppKey;
  app: Application;
  choice: Choice;
  set: (change: Partial<Choice>) => void;
  drifted: number;
  managed: number;
}

function Options({ appKey, app, choice, set, drifted, managed }: OptionsProps) {
  const [more, setMore] = useState(choice.options.length > 0);
  return (
    <section className="sync-options" aria-label={t('Options')}>
      <TextInput
        label={t('Revision')}
        placeholder={app.spec.source?.targetRevision ?? 'HEAD'}
        value={choice.revision}
        onChange={(e) => set({ revision: e.currentTarget.value })}
      />
      {!choice.revision && app.status?.sync?.revision && <Commit appKey={appKey} revision={app.status.sync.revision} />}
      {choice.revision && (
        <p className="quiet">
          {t('In place of {{revision}}, once.', { revision: shortRevision(app.status?.sync?.revision) })}
        </p>
      )}
      <SegmentedControl
        fullWidth
        size="xs"
        aria-label={t('Selection')}
        value={choice.selection}
        data={[
          { value: 'all', label: t('All, {{managed}}', { managed }) },
          { value: 'drifted', label: t('Drifted, {{drifted}}', { drifted }) },
          { value: 'picked', label: t('Pick') },
        ]}
        onChange={(v) => set({ selection: v === 'drifted' || v === 'picked' ? v : 'all' })}
      />
      <Option
        label={t('Prune')}
        effect={t('Delete what is no longer in Git.')}
        on={choice.prune}
        set={(prune) => set({ prune })}
      />
      <Option
        label={t('Dry run')}
        effect={t('Ask the cluster, change nothing.')}
        on={choice.dryRun}
        set={(dryRun) => set({ dryRun })}
      />
      <Option
        label={t('Apply only')}
        effect={t('Run no hooks.')}
        on={choice.applyOnly}
        set={(applyOnly) => set({ applyOnly })}
      />
      <Option
        label={t('Retry on failure')}
        effect={t('After 10 s, then doubling.')}
        on={choice.retry}
        set={(retry) => set({ retry })}
      />
      {choice.retry && (
        <NumberInput
          size="xs"
          label={t('Attempts')}
          min={1}
          max={100}
          value={choice.retries}
          onChange={(v) => set({ retries: typeof v === 'number' && v > 0 ? v : 1 })}
        />
      )}
      <Option
        label={t('Replace')}
        effect={t('Replace objects instead of applying fields.')}
        on={choice.replace}
        set={(replace) => set({ replace })}
      />
      <Option
        label={t('Force')}
        effect={t('Delete and create again what cannot be changed.')}
        on={choice.force}
        set={(force) => set({ force })}
      />
      <button type="button" className="as-link" aria-expanded={more} onClick={() => setMore(!more)}>
        {t('{{n}} more options', { n: options.length })}
      </button>
      {more &&
        options.map((o) => (
          <Option
            key={o.name}
            label={o.label}
            effect={o.effect}
            on={choice.options.includes(o.name)}
            set={(on) =>
              set({ options: on ? [...choice.options, o.name] : choice.options.filter((n) => n !== o.name) })
            }
          />
        ))}
      <TextInput
        label={t('Reason')}
        placeholder={t('kept in the history')}
        value={choice.reason}
        onChange={(e) => set({ reason: e.currentTarget.value })}
      />
    </section>
  );
}

function Option(props: { label: string; effect: string; on: boolean; set: (on: boolean) => void }) {
  return (
    <Switch
      size="xs"
      label={props.label}
      description={props.effect}
      checked={props.on}
      onChange={(e) => props.set(e.currentTarget.checked)}
    />
  );
}
