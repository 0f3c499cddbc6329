import { parseDocument, stringify } from 'yaml';
import { t } from '../../texts';
import type { AppProject } from './api';

/** Where the sources of a project's applications may be, in words. */
export function sourcesOf(p: AppProject): string {
  const all = p.spec.sourceRepos ?? [];
  if (all.length === 0) return t('none');
  return all.includes('*') ? t('any repository') : all.join(', ');
}

/** Where a project's applications may go, in words. */
export function destinationsOf(p: AppProject): string {
  const all = p.spec.destinations ?? [];
  if (all.length === 0) return t('nowhere');
  return all
    .map((d) => {
      const cluster = d.name || d.server || '*';
      const namespace = d.namespace || '*';
      if (cluster === '*')
        return namespace === '*' ? t('anywhere') : t('namespace {{namespace}} of any cluster', { namespace });
      return namespace === '*'
        ? t('all of {{cluster}}', { cluster })
        : t('{{namespace}} on {{cluster}}', { namespace, cluster });
    })
    .join('; ');
}

/** The lists of kinds of a project, in words. */
export function kindsOf(list: readonly { group: string; kind: string }[] | null | undefined, none: string): string {
  if (!list || list.length === 0) return none;
  return list
    .map(({ group, kind }) => {
      if (kind !== '*') return group ? t('{{kind}} of {{group}}', { kind, group }) : kind;
      return group && group !== '*' ? t('every kind of {{group}}', { group }) : t('every kind');
    })
    .join(', ');
}

/** The text of a project that somebody edits: without what is the hub's. */
export function textOf(p: AppProject): string {
  const { name, namespace, labels, annotations, finalizers } = p.metadata;
  const metadata = Object.fromEntries(
    Object.entries({ name, namespace, labels, annotations, finalizers }).filter(([, v]) => v !== undefined),
  );
  return stringify({ apiVersion: p.apiVersion, kind: p.kind, metadata, spec: p.spec }, { lineWidth: 0 });
}

/** Reads the text again; the version that it is based on is kept. */
export function readText(text: string, based: AppProject): { project?: AppProject; error: string } {
  const doc = parseDocument(text);
  const first = doc.errors[0];
  if (first) return { error: first.message.split('\n')[0] ?? t('it is not YAML') };
  const raw: unknown = doc.toJS();
  if (
    typeof raw !== 'object' ||
    raw === null ||
    !('spec' in raw) ||
    typeof raw.spec !== 'object' ||
    raw.spec === null
  ) {
    return { error: t('It has no spec.') };
  }
  const metadata = 'metadata' in raw && typeof raw.metadata === 'object' ? raw.metadata : {};
  if (metadata && 'name' in metadata && metadata.name !== based.metadata.name) {
    return { error: t('The name stays {{name}}; make another project instead.', { name: based.metadata.name }) };
  }
  return {
    error: '',
    project: {
      apiVersion: based.apiVersion,
      kind: based.kind,
      metadata: {
        ...metadata,
        name: based.metadata.name,
        ...(based.metadata.resourceVersion ? { resourceVersion: based.metadata.resourceVersion } : {}),
      },
      spec: Object.fromEntries(Object.entries(raw.spec)),
    },
  };
}

/** A project with its lists as a form has them, one entry on each line. */
export interface Simple {
  description: string;
  sources: string;
  destinations: string;
}

export const simpleOf = (p: AppProject): Simple => ({
  description: p.spec.description ?? '',
  sources: (p.spec.sourceRepos ?? []).join('\n'),
  destinations: (p.spec.destinations ?? []).map((d) => `${d.name || d.server || '*'} ${d.namespace || '*'}`).join('\n'),
});

const linesOf = (text: string) =>
  text
    .split('\n')
    .map((l) => l.trim())
    .filter(Boolean);

/** A project with what a form changed; everything else of it stays. */
export function withSimple(p: AppProject, s: Simple): AppProject {
  const destinations = linesOf(s.destinations).map((line) => {
    const [cluster = '*', namespace = '*'] = line.split(/\s+/);
    const held = (p.spec.destinations ?? []).find(
      (d) => (d.name || d.server || '*') === cluster && (d.namespace || '*') === namespace,
    );
    return held ?? (cluster.includes('://') ? { server: cluster, namespace } : { name: cluster, namespace });
  });
  return {
    ...p,
    spec: { ...p.spec, description: s.description, sourceRepos: linesOf(s.sources), destinations },
  };
}
