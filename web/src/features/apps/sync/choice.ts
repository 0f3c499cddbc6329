import type { ObjectDiff, SyncRequest } from '../../../api/client';
import { t } from '../../../texts';
import type { Action } from '../diff/action';
import { referenceOf } from '../object/reference';

/** What a person chose for a sync. */
export interface Choice {
  /** A branch, tag or commit in place of the target's; empty: the target's. */
  revision: string;
  selection: 'drifted' | 'all' | 'picked';
  picked: readonly string[];
  prune: boolean;
  dryRun: boolean;
  force: boolean;
  replace: boolean;
  applyOnly: boolean;
  retry: boolean;
  retries: number;
  /** Further options that are on, by name. */
  options: readonly string[];
  reason: string;
}

/** Options of a sync that are switched on by a name; the effect of each in one sentence. */
export const options: readonly { name: string; value: string; label: string; effect: string }[] = [
  {
    name: 'ServerSideApply',
    value: 'true',
    label: t('Server-side apply'),
    effect: t('On by default here; the option is accepted.'),
  },
  {
    name: 'PruneLast',
    value: 'true',
    label: t('Prune last'),
    effect: t('Objects are deleted after everything else is healthy.'),
  },
  {
    name: 'CreateNamespace',
    value: 'true',
    label: t('Create the namespace'),
    effect: t('The namespace of the destination is created if it is missing.'),
  },
  {
    name: 'RespectIgnoreDifferences',
    value: 'true',
    label: t('Respect ignored differences'),
    effect: t('Ignored fields keep their live values.'),
  },
  {
    name: 'FailOnSharedResource',
    value: 'true',
    label: t('Fail on shared objects'),
    effect: t('It fails if an object belongs to another application.'),
  },
  {
    name: 'SkipDryRunOnMissingResource',
    value: 'true',
    label: t('Skip the dry run of missing kinds'),
    effect: t('Kinds that the sync creates itself are checked when they are applied.'),
  },
  { name: 'Validate', value: 'false', label: t('Do not validate'), effect: t('Unknown fields pass.') },
  {
    name: 'PrunePropagationPolicy',
    value: 'background',
    label: t('Prune in the background'),
    effect: t('Owned objects are deleted after their owner.'),
  },
];

/** What is chosen before anybody has. */
export function firstChoice(prune: boolean): Choice {
  return {
    revision: '',
    selection: 'all',
    picked: [],
    prune,
    dryRun: false,
    force: false,
    replace: false,
    applyOnly: false,
    retry: false,
    retries: 3,
    options: [],
    reason: '',
  };
}

const storedAs = (app: string) => `capstan.sync.${app}`;

/** The choice of this browser for an application, without what is of one sync alone. */
export function lastChoice(app: string, prune: boolean): Choice {
  const first = firstChoice(prune);
  try {
    const held: Partial<Choice> = JSON.parse(localStorage.getItem(storedAs(app)) ?? '{}');
    const flag = (name: 'prune' | 'applyOnly' | 'retry') =>
      typeof held[name] === 'boolean' ? held[name] : first[name];
    const known = Array.isArray(held.options)
      ? options.filter((o) => held.options?.includes(o.name)).map((o) => o.name)
      : [];
    return {
      ...first,
      prune: flag('prune'),
      applyOnly: flag('applyOnly'),
      retry: flag('retry'),
      selection: held.selection === 'drifted' ? 'drifted' : 'all',
      options: known,
    };
  } catch {
    return first;
  }
}

export function rememberChoice(app: string, choice: Choice) {
  const { prune, applyOnly, retry, options: on } = choice;
  const selection = choice.selection === 'drifted' ? 'drifted' : 'all';
  localStorage.setItem(storedAs(app), JSON.stringify({ prune, applyOnly, retry, selection, options: on }));
}

/** The request that a choice stands for. */
export function requestOf(c: Choice, items: readonly ObjectDiff[]): SyncRequest {
  const syncOptions = options.filter((o) => c.options.includes(o.name)).map((o) => `${o.name}=${o.value}`);
  if (c.replace) syncOptions.push('Replace=true');
  if (c.selection === 'drifted') syncOptions.push('ApplyOutOfSyncOnly=true');
  const picked = new Set(c.picked);
  const resources = items
    .filter((o) => picked.has(referenceOf(o)))
    .map((o) => ({ group: o.group, kind: o.kind, ...(o.namespace ? { namespace: o.namespace } : {}), name: o.name }));
  return {
    prune: c.prune,
    dryRun: c.dryRun,
    ...(c.revision ? { revision: c.revision } : {}),
    ...(c.applyOnly || c.force
      ? { strategy: c.applyOnly ? { apply: { force: c.force } } : { hook: { force: c.force } } }
      : {}),
    ...(syncOptions.length > 0 ? { syncOptions } : {}),
    ...(c.selection === 'picked' ? { resources } : {}),
    ...(c.retry ? { retry: { limit: c.retries, backoff: { duration: '10s', factor: 2, maxDuration: '3m' } } } : {}),
    ...(c.reason ? { reason: c.reason } : {}),
  };
}

/** What a sync does with an object. */
export interface Step {
  id: string;
  object: ObjectDiff;
  action: Action;
  wave: number;
  /** Whether the choice leaves it out. */
  left: boolean;
}

/** The steps of a plan in the order of their waves; deletions go against it, last. */
export function stepsOf(items: readonly ObjectDiff[], waves: ReadonlyMap<string, number>, c: Choice): Step[] {
  const picked = new Set(c.picked);
  const steps = items.map((object): Step => {
    const id = referenceOf(object);
    const action = !object.desired ? 'delete' : object.live ? 'change' : 'create';
    const left = (action === 'delete' && !c.prune) || (c.selection === 'picked' && !picked.has(id));
    return { id, object, action, wave: waves.get(id) ?? 0, left };
  });
  const late = (s: Step) => Number(s.action === 'delete');
  return steps.sort((a, b) => late(a) - late(b) || (late(a) ? b.wave - a.wave : a.wave - b.wave));
}

/** What of a choice has no effect, or another one than people think. */
export function notesOn(c: Choice, steps: readonly Step[]): string[] {
  const out: string[] = [];
  if (c.replace && c.options.includes('ServerSideApply'))
    out.push(t('Replace has no effect on objects that are applied server-side.'));
  if (c.dryRun && c.retry) out.push(t('A dry run is not tried again.'));
  if (c.prune && !steps.some((s) => s.action === 'delete')) out.push(t('There is nothing to prune.'));
  if (!c.prune && c.options.includes('PruneLast')) out.push(t('Prune last has no effect without prune.'));
  if (!c.prune && c.options.includes('PrunePropagationPolicy'))
    out.push(t('How to prune has no effect without prune.'));
  if (c.selection === 'picked' && !c.applyOnly) out.push(t('A sync of picked objects runs no hooks.'));
  if (c.selection === 'picked' && c.picked.length === 0) out.push(t('No object is picked.'));
  return out;
}

/** Whether a sync would delete all that the application has. */
export function deletesAll(steps: readonly Step[], managed: number): boolean {
  const gone = steps.filter((s) => s.action === 'delete' && !s.left).length;
  return gone > 0 && gone >= managed;
}
