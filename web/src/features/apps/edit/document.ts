import { isMap, parseDocument, stringify } from 'yaml';
import type { Application } from '../../../api/client';
import { t } from '../../../texts';
import { at, fields, list, text } from '../object/read';

/** Where something stands in an application, such as ['spec', 'source', 'path']. */
export type Path = readonly (string | number)[];

/** An application that somebody writes: its text, what that says, and where it cannot be read. */
export interface Draft {
  text: string;
  value: unknown;
  /** Why the text is no YAML, with the line; empty: it is. */
  problem: string;
  line: number | undefined;
}

export function read(source: string): Draft {
  const doc = parseDocument(source, { prettyErrors: true });
  const first = doc.errors[0];
  if (first) {
    const line = first.linePos?.[0].line;
    return { text: source, value: {}, problem: first.message.split('\n')[0] ?? t('it is no YAML'), line };
  }
  if (!isMap(doc.contents)) {
    return {
      text: source,
      value: {},
      problem: t('It is no object: it begins with apiVersion, kind, metadata and spec.'),
      line: 1,
    };
  }
  return { text: source, value: doc.toJS(), problem: '', line: undefined };
}

/** Maps that mean nothing when they are empty, so that they go with their last field. */
const hollow = [
  'helm',
  'kustomize',
  'directory',
  'jsonnet',
  'plugin',
  'syncPolicy',
  'retry',
  'backoff',
  'labels',
  'annotations',
];

/**
 * The text with one field changed; comments, order and unknown fields stay.
 * Undefined removes the field, and what would be left empty around it.
 */
export function write(source: string, path: Path, value: unknown): string {
  const doc = parseDocument(source);
  if (doc.errors.length > 0) return source;
  if (value !== undefined) {
    doc.setIn(path, doc.createNode(value));
  } else if (doc.hasIn(path)) {
    doc.deleteIn(path);
    for (let above = path.slice(0, -1); above.length > 1; above = above.slice(0, -1)) {
      const rest = doc.getIn(above);
      if (!hollow.includes(String(above.at(-1))) || !isMap(rest) || rest.items.length > 0) break;
      doc.deleteIn(above);
    }
  }
  return doc.toString({ lineWidth: 0 });
}

/** The text of an application that people edit: without what is the hub's. */
export function textOf(app: Application): string {
  return stringify(writable(app), { lineWidth: 0, aliasDuplicateObjects: false });
}

/** What people write of an application. */
export function writable(app: Application): Record<string, unknown> {
  const { name, namespace, labels, annotations, finalizers } = app.metadata;
  const metadata = Object.fromEntries(
    Object.entries({ name, namespace, labels, annotations, finalizers }).filter(
      ([, v]) => v !== undefined && v !== null && Object.keys(v).length > 0,
    ),
  );
  return { apiVersion: app.apiVersion, kind: app.kind, metadata, spec: app.spec };
}

/** What a new application begins with. */
export interface Beginning {
  repo?: string | undefined;
  path?: string | undefined;
  chart?: string | undefined;
  revision?: string | undefined;
  project?: string | undefined;
  cluster?: string | undefined;
  namespace?: string | undefined;
  name?: string | undefined;
}

export function begin(b: Beginning): string {
  const source = b.chart
    ? { repoURL: b.repo ?? '', chart: b.chart, targetRevision: b.revision ?? '' }
    : { repoURL: b.repo ?? '', path: b.path ?? '', targetRevision: b.revision ?? 'HEAD' };
  return stringify(
    {
      apiVersion: 'argoproj.io/v1alpha1',
      kind: 'Application',
      metadata: { name: b.name ?? '', namespace: 'argocd' },
      spec: {
        project: b.project ?? 'default',
        source,
        destination: { name: b.cluster ?? '', namespace: b.namespace ?? '' },
        syncPolicy: { syncOptions: ['CreateNamespace=true'] },
      },
    },
    { lineWidth: 0 },
  );
}

/** The places of an application's sources. */
export function sourcePaths(value: unknown): Path[] {
  const several = list(value, 'spec.sources');
  return several.length > 0 ? several.map((_, i) => ['spec', 'sources', i]) : [['spec', 'source']];
}

/** What stands at a place. */
export function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((v, key) => (typeof key === 'number' ? list(v, '')[key] : fields(v)[key]), value);
}

/** The text with one source more; a single one becomes the first of the list. */
export function addSource(source: string): string {
  const { value } = read(source);
  const several = list(value, 'spec.sources');
  const fresh = { repoURL: '', path: '', targetRevision: 'HEAD' };
  if (several.length > 0) return write(source, ['spec', 'sources', several.length], fresh);
  const doc = parseDocument(source);
  const one = doc.getIn(['spec', 'source'], true);
  doc.deleteIn(['spec', 'source']);
  doc.setIn(['spec', 'sources'], doc.createNode([]));
  if (one !== undefined) doc.addIn(['spec', 'sources'], one);
  doc.addIn(['spec', 'sources'], doc.createNode(fresh));
  return doc.toString({ lineWidth: 0 });
}

/** The text without one of several sources; the last one left becomes the only one. */
export function removeSource(source: string, index: number): string {
  const doc = parseDocument(source);
  doc.deleteIn(['spec', 'sources', index]);
  if (list(doc.toJS(), 'spec.sources').length === 1) {
    const one = doc.getIn(['spec', 'sources', 0], true);
    doc.deleteIn(['spec', 'sources']);
    doc.setIn(['spec', 'source'], one);
  }
  return doc.toString({ lineWidth: 0 });
}

/** The line of a field in the text, or of what is around it. */
export function lineOf(source: string, path: Path): number | undefined {
  const doc = parseDocument(source);
  for (let p = path; p.length > 0; p = p.slice(0, -1)) {
    const node = doc.getIn(p, true);
    if (typeof node === 'object' && node !== null && 'range' in node && Array.isArray(node.range)) {
      return source.slice(0, Number(node.range[0])).split('\n').length;
    }
  }
  return undefined;
}

export interface FieldProblem {
  path: Path;
  message: string;
}

const dnsName = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/** What an application lacks before the hub need be asked. */
export function problemsOf(value: unknown): FieldProblem[] {
  const out: FieldProblem[] = [];
  const add = (path: Path, message: string) => out.push({ path, message });
  const name = text(value, 'metadata.name');
  if (!name) add(['metadata', 'name'], t('Give it a name.'));
  else if (!dnsName.test(name)) add(['metadata', 'name'], t('Use lower-case letters, digits, hyphens and dots.'));
  for (const path of sourcePaths(value)) {
    const s = valueAt(value, path);
    if (!text(s, 'repoURL')) add([...path, 'repoURL'], t('Choose a repository.'));
    if (at(s, 'chart') !== undefined && !text(s, 'chart')) add([...path, 'chart'], t('Choose a chart.'));
    if (text(s, 'path').startsWith('/')) add([...path, 'path'], t('Write it relative to the root of the repository.'));
  }
  const cluster = text(value, 'spec.destination.name') || text(value, 'spec.destination.server');
  if (!cluster) add(['spec', 'destination', 'name'], t('Choose a cluster.'));
  return out;
}

/** The fields that a refusal of the hub is about, by what its sentence has. */
const refusals: readonly [RegExp, Path][] = [
  [/no DNS name|already exists|has a name/i, ['metadata', 'name']],
  [/permit the repository|repoURL|repository/i, ['spec', 'source', 'repoURL']],
  [/permit the destination|destination/i, ['spec', 'destination', 'name']],
  [/project/i, ['spec', 'project']],
  [/targetRevision|revision/i, ['spec', 'source', 'targetRevision']],
  [/chart/i, ['spec', 'source', 'chart']],
  [/path|directory|manifest/i, ['spec', 'source', 'path']],
  [/sync ?options?|retry/i, ['spec', 'syncPolicy']],
];

/** The field that a sentence of the hub is about; undefined: it is about no single one. */
export function fieldOf(message: string, value: unknown): Path | undefined {
  const place = /spec\.sources\[(\d+)\]/.exec(message);
  const found = refusals.find(([words]) => words.test(message))?.[1];
  if (found?.[1] !== 'source') return found;
  const rest = found.slice(2);
  if (place) return ['spec', 'sources', Number(place[1]), ...rest];
  const first = sourcePaths(value)[0] ?? ['spec', 'source'];
  return [...first, ...rest];
}

export const samePath = (a: Path, b: Path) => a.length === b.length && a.every((key, i) => key === b[i]);
