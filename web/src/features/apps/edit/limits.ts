import { t } from '../../../texts';
import { fields, list, text } from '../object/read';

/** Whether a glob of a project, such as https://git.example.com/*, fits. */
export function fits(glob: string, value: string): boolean {
  const words = glob
    .split('*')
    .map((w) => w.replace(/[.+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*');
  return new RegExp(`^${words}$`).test(value);
}

/** Whether a list permits a value; an entry with ! before it denies. */
function permits(globs: readonly string[], value: string): boolean {
  if (globs.some((g) => g.startsWith('!') && fits(g.slice(1), value))) return false;
  return globs.some((g) => !g.startsWith('!') && fits(g, value));
}

/** Why a project refuses a repository, as far as its own rules say; empty: they do not. */
export function refusesSource(project: unknown, url: string): string {
  const all = list(project, 'spec.sourceRepos').map((s) => text(s));
  const bare = (u: string) => u.replace(/\.git$/, '');
  if (!url || permits(all, url) || permits(all.map(bare), bare(url))) return '';
  return all.length === 0
    ? t('The project permits no repository.')
    : t('The project permits only: {{names}}.', { names: all.join(', ') });
}

/** The same of a destination; a cluster may be named by name or by address. */
export function refusesDestination(project: unknown, to: { names: readonly string[]; namespace: string }): string {
  const all = list(project, 'spec.destinations').map((d) => ({
    cluster: text(d, 'name') || text(d, 'server') || '*',
    namespace: text(d, 'namespace') || '*',
  }));
  const denied = all.some(
    (d) =>
      d.namespace.startsWith('!') &&
      to.names.some((n) => fits(d.cluster, n)) &&
      fits(d.namespace.slice(1), to.namespace),
  );
  const names = to.names.filter(Boolean);
  if (names.length === 0) return '';
  const may = all.some((d) => names.some((n) => fits(d.cluster, n)) && fits(d.namespace, to.namespace));
  if (may && !denied) return '';
  if (all.length === 0) return t('The project permits no destination.');
  return t('The project permits only: {{names}}.', {
    names: all.map((d) => t('{{namespace}} on {{cluster}}', d)).join(', '),
  });
}

/** What a project says of itself in one line. */
export function aboutProject(project: unknown): string {
  const spec = fields(fields(project)['spec']);
  const kinds = list(spec, 'clusterResourceWhitelist').length;
  const windows = list(spec, 'syncWindows').length;
  return [
    text(spec, 'description'),
    windows > 0 ? t('{{n}} sync windows', { n: windows }) : '',
    kinds === 0 ? t('no cluster-wide kinds') : '',
  ]
    .filter(Boolean)
    .join(' · ');
}
