import { Link } from '@tanstack/react-router';
import { Rich, t } from '../../../texts';
import { type Look, StateMark } from '../../../ui/badges';
import { SectionTitle } from '../../../ui/page';
import { type Rollout, type RolloutState, rolloutLooks, rolloutOrder, type Step } from './model';

const stepLooks: Record<Step['state'], Look> = {
  done: { label: t('Done'), tone: 'ok', shape: 'done' },
  running: { label: t('Rolling out'), tone: 'working', shape: 'progressing' },
  waiting: { label: t('Waiting'), tone: 'unknown', shape: 'hand' },
  empty: { label: t('No application'), tone: 'unknown', shape: 'absent' },
};

/** So many applications of a step are named; the rest is counted. */
const named = 12;

/** The steps of a rollout in their order, each with the states of its applications. */
export function RolloutStrip({ rollout, namespace }: { rollout: Rollout; namespace: string }) {
  const done = rollout.steps.filter((s) => s.state === 'done' || s.state === 'empty').length;
  return (
    <section aria-label={t('Rollout')}>
      <SectionTitle
        right={
          <span className="quiet">{t('{{done}} of {{all}} steps done', { done, all: rollout.steps.length })}</span>
        }
      >
        {t('Rollout')}
      </SectionTitle>
      <ol className="set-steps">
        {rollout.steps.map((s) => (
          <li key={s.number} data-state={s.state} {...(s.state === 'running' ? { 'aria-current': 'step' } : {})}>
            <div className="set-line">
              <b>{t('Step {{n}}', { n: s.number })}</b>
              <StateMark look={stepLooks[s.state]} weight="quiet" />
            </div>
            <div className="quiet breakable mono">{s.selector || t('every application')}</div>
            <div className="quiet">{pace(s)}</div>
            <Counts states={s.applications} />
            <Names states={s.applications} namespace={namespace} />
          </li>
        ))}
      </ol>
      {rollout.rest.length > 0 && (
        <p className="quiet breakable">
          {t('In no step, and never synced by the rollout: {{names}}', {
            names: rollout.rest.map((a) => a.application).join(', '),
          })}
        </p>
      )}
    </section>
  );
}

function pace(s: Step): string {
  if (s.atOnce === '') return t('all at once');
  if (s.atOnce === '0' || s.atOnce === '0%') return t('only by hand');
  return t('at most {{n}} at once', { n: s.atOnce });
}

function Counts({ states }: { states: readonly RolloutState[] }) {
  return (
    <div className="set-counts">
      {rolloutOrder.map((status) => {
        const n = states.filter((a) => a.status === status).length;
        return n > 0 ? (
          <StateMark
            key={status}
            look={{ ...rolloutLooks[status], label: `${n} ${rolloutLooks[status].label}` }}
            weight="quiet"
          />
        ) : null;
      })}
    </div>
  );
}

/** What is not done yet comes first: it says what the rollout waits for. */
function Names({ states, namespace }: { states: readonly RolloutState[]; namespace: string }) {
  const open = states.filter((a) => a.status !== 'Healthy');
  if (open.length === 0) return null;
  return (
    <ul className="set-names">
      {open.slice(0, named).map((a) => (
        <li key={a.application} title={a.message}>
          <Rich
            text="<app/>: <state/>"
            parts={{
              app: (
                <Link to="/applications/$namespace/$name" params={{ namespace, name: a.application }}>
                  {a.application}
                </Link>
              ),
              state: <span className="quiet">{rolloutLooks[a.status].label}</span>,
            }}
          />
        </li>
      ))}
      {open.length > named && <li className="quiet">{t('and {{n}} more', { n: open.length - named })}</li>}
    </ul>
  );
}
