import { parseDocument, stringify } from 'yaml';
import { t } from '../../../texts';
import type { Look } from '../../../ui/badges';
import { at, list, text } from '../object/read';
import type { ApplicationSet, Previewed, SetPreview, SetStatus } from './api';
import type { SetKey } from './keys';

export type Member = NonNullable<SetStatus['resources']>[number];
export type RolloutState = NonNullable<SetStatus['applicationStatus']>[number];
export type Condition = NonNullable<SetStatus['conditions']>[number];

export const keyOfSet = (set: ApplicationSet): SetKey => ({
  namespace: set.metadata.namespace || 'argocd',
  name: set.metadata.name,
});

/** The project that rights on a set are of; `*` where its template decides. */
export const projectOfSet = (set: ApplicationSet | undefined) => set?.status?.capstan?.project || 'default';

/** Fields of a generator that are no generators. */
const besides = new Set(['selector', 'template']);

/** The kinds of generators of a set, each once, those inside of matrix and merge too. */
export function generatorsOf(spec: unknown): string[] {
  const found: string[] = [];
  const add = (generators: unknown[]) => {
    for (const g of generators) {
      if (typeof g !== 'object' || g === null) continue;
      for (const kind of Object.keys(g)) {
        if (besides.has(kind)) continue;
        if (!found.includes(kind)) found.push(kind);
        add(list(g, `${kind}.generators`));
      }
    }
  };
  add(list(spec, 'generators'));
  return found;
}

const fine = new Set(['ParametersGenerated', 'ResourcesUpToDate', 'RolloutProgressing']);

/** The conditions that somebody has to do something about. */
export const problemsOf = (set: ApplicationSet): Condition[] =>
  (set.status?.conditions ?? []).filter((c) => c.status === 'True' && !fine.has(c.type));

export const rolloutLooks: Record<RolloutState['status'], Look> = {
  Healthy: { label: t('Healthy'), tone: 'ok', shape: 'healthy' },
  Progressing: { label: t('Progressing'), tone: 'working', shape: 'progressing' },
  Pending: { label: t('Pending'), tone: 'working', shape: 'waiting' },
  Waiting: { label: t('Waiting'), tone: 'unknown', shape: 'hand' },
};
export const rolloutOrder = [
  'Healthy',
  'Progressing',
  'Pending',
  'Waiting',
] as const satisfies RolloutState['status'][];

/** One step of a rollout, and how far its applications are. */
export interface Step {
  /** From 1. */
  number: number;
  /** What selects its applications, as people write selectors. */
  selector: string;
  /** How many are synced at once; empty: all. */
  atOnce: string;
  applications: RolloutState[];
  state: 'done' | 'running' | 'waiting' | 'empty';
}

export interface Rollout {
  steps: Step[];
  /** Those of no step, which the rollout never syncs. */
  rest: RolloutState[];
}

const selectorOf = (step: unknown) =>
  list(step, 'matchExpressions')
    .map((e) => {
      const values = list(e, 'values').map(String).join(', ');
      return text(e, 'operator') === 'NotIn' ? `${text(e, 'key')} ∉ ${values}` : `${text(e, 'key')} = ${values}`;
    })
    .join(', ');

function stateOf(applications: readonly RolloutState[]): Step['state'] {
  if (applications.length === 0) return 'empty';
  if (applications.every((a) => a.status === 'Healthy')) return 'done';
  return applications.some((a) => a.status !== 'Waiting') ? 'running' : 'waiting';
}

/** The steps of a set with a rolling sync; undefined: it has none. */
export function rolloutOf(set: ApplicationSet): Rollout | undefined {
  if (text(set.spec, 'strategy.type') !== 'RollingSync') return undefined;
  const states = set.status?.applicationStatus ?? [];
  const steps = list(set.spec, 'strategy.rollingSync.steps').map((s, i) => {
    const applications = states.filter((a) => a.step === String(i + 1));
    const most = at(s, 'maxUpdate');
    return {
      number: i + 1,
      selector: selectorOf(s),
      atOnce: most === undefined || most === null ? '' : String(most),
      applications,
      state: stateOf(applications),
    };
  });
  const known = new Set(steps.map((s) => String(s.number)));
  return { steps, rest: states.filter((a) => !known.has(a.step)) };
}

const healthRank = ['Degraded', 'Missing', 'Unknown', 'Progressing', 'Suspended', 'Healthy'];
const rank = (m: Member) => {
  const r = healthRank.indexOf(m.health?.status ?? 'Unknown');
  return r < 0 ? healthRank.length : r;
};

/** The applications of a set: those with a text in their names, problems first. */
export function membersOf(set: ApplicationSet, find: string): Member[] {
  const wanted = find.toLowerCase();
  return (set.status?.resources ?? [])
    .filter((m) => m.name.toLowerCase().includes(wanted))
    .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

/** What people write of a set. */
export function writableSet(set: ApplicationSet): ApplicationSet {
  const { name, namespace, labels, annotations, finalizers } = set.metadata;
  return {
    apiVersion: set.apiVersion,
    kind: set.kind,
    metadata: {
      name,
      ...(namespace ? { namespace } : {}),
      ...(labels ? { labels } : {}),
      ...(annotations ? { annotations } : {}),
      ...(finalizers ? { finalizers } : {}),
    },
    spec: set.spec,
  };
}

export const textOfSet = (set: ApplicationSet) =>
  stringify(writableSet(set), { lineWidth: 0, aliasDuplicateObjects: false });

const isSet = (value: unknown): value is ApplicationSet =>
  text(value, 'kind') === 'ApplicationSet' &&
  text(value, 'apiVersion') === 'argoproj.io/v1alpha1' &&
  text(value, 'metadata.name') !== '' &&
  typeof at(value, 'spec') === 'object' &&
  at(value, 'spec') !== null;

/** A text as a set, or why it is none, with the line. */
export function readSet(source: string): { set?: ApplicationSet; problem: string; line?: number } {
  const doc = parseDocument(source, { prettyErrors: true });
  const first = doc.errors[0];
  if (first) {
    const line = first.linePos?.[0].line;
    return { problem: first.message.split('\n')[0] ?? t('it is no YAML'), ...(line ? { line } : {}) };
  }
  const value: unknown = doc.toJS();
  if (!isSet(value))
    return { problem: t('It is no ApplicationSet: it needs apiVersion, kind, metadata.name and spec.') };
  return { set: writableSet(value), problem: '' };
}

/** Which entries of a preview are shown. */
export type Shown = 'all' | 'create' | 'update' | 'delete' | 'unchanged' | 'problems';

export const shownItems = (items: readonly Previewed[], shown: Shown): Previewed[] =>
  items.filter((i) => {
    if (shown === 'all') return true;
    return shown === 'problems' ? Boolean(i.problem) : i.action === shown;
  });

/** What has to be agreed to before a set is saved: how many applications go, and whether that is many. */
export interface Guard {
  deleted: string[];
  held: number;
  /** None of the applications that there are would stay. */
  all: boolean;
}

export function guardOf(preview: SetPreview): Guard {
  const deleted = preview.items.filter((i) => i.action === 'delete').map((i) => i.name);
  const left = preview.counts.update + preview.counts.unchanged;
  return { deleted, held: preview.counts.held, all: deleted.length > 0 && left === 0 };
}

/** A set to begin with. */
export const firstSet = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: fleet
  namespace: argocd
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
    - list:
        elements:
          - cluster: in-cluster
            env: dev
  template:
    metadata:
      name: 'fleet-{{.cluster}}'
      labels:
        env: '{{.env}}'
    spec:
      project: default
      source:
        repoURL: https://git.example.com/team/fleet.git
        targetRevision: main
        path: 'env/{{.env}}'
      destination:
        name: '{{.cluster}}'
        namespace: fleet
`;
