import { Anchor } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import type { Application } from '../../api/client';
import { ago, exact, shortRevision } from '../../format/format';
import { t } from '../../texts';
import { safeURL } from './annotations';
import { type AppKey, appQueries } from './api';

/** A revision with the subject, author and age of its commit, or the version of its chart. */
export function Commit({ appKey, revision }: { appKey: AppKey; revision: string }) {
  const about = useQuery(appQueries.revision(appKey, revision));
  const r = about.data;
  return (
    <span className="commit" title={r?.message}>
      <code>{r?.chart ? `${r.chart.name} ${r.chart.version}` : shortRevision(revision)}</code>{' '}
      {[r?.message?.split('\n')[0], r?.author].filter(Boolean).join(', ')}
      {r?.date && <span title={exact(r.date)}>, {ago(r.date, Date.now())}</span>}
    </span>
  );
}

type Source = NonNullable<Application['spec']['source']>;

/** The last parts of an address of a repository, as people name it. */
export function repositoryName(url: string): string {
  const path = url
    .replace(/\.git$/, '')
    .replace(/^[a-z+]+:\/\/[^/]+\//i, '')
    .replace(/^[^@/]+@[^:]+:/, '');
  return path || url;
}

/** The sources of an application: repository, path or chart, and what of it is followed. */
export function Sources({ appKey, app }: { appKey: AppKey; app: Application }) {
  const sources: Source[] = app.spec.sources?.length ? app.spec.sources : app.spec.source ? [app.spec.source] : [];
  const revisions = app.status?.sync?.revisions ?? [];
  const one = app.status?.sync?.revision;
  if (sources.length === 0) return <span className="quiet">{t('none')}</span>;
  return sources.map((s, i) => {
    const revision = revisions[i] ?? (sources.length === 1 ? one : undefined);
    return (
      // biome-ignore lint/suspicious/noArrayIndexKey: sources have no identity but their place
      <div key={i} className="source">
        <div title={s.repoURL}>
          <Repository url={s.repoURL} /> {s.path ?? s.chart} @ {s.targetRevision ?? 'HEAD'}
        </div>
        {revision && <Commit appKey={appKey} revision={revision} />}
      </div>
    );
  });
}

function Repository({ url }: { url: string }) {
  const safe = safeURL(url);
  const name = repositoryName(url);
  return safe ? (
    <Anchor href={safe} target="_blank" rel="noopener noreferrer" size="sm" underline="always">
      {name}
    </Anchor>
  ) : (
    <span>{name}</span>
  );
}
