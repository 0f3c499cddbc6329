import { Anchor, Text, Tooltip } from '@mantine/core';
import { IconExternalLink } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import type { Node } from '../../api/client';
import { t } from '../../texts';
import { safeURL } from './annotations';
import { type AppKey, appQueries } from './api';

interface Declared {
  items: { title: string; url: string; description?: string }[];
  problems?: string[];
}

/** Links that the tenant declares for applications. */
export function ApplicationLinks({ appKey }: { appKey: AppKey }) {
  return <Links links={useQuery(appQueries.links(appKey)).data} />;
}

/** Links that the tenant declares for objects. */
export function ObjectLinks({ appKey, node }: { appKey: AppKey; node: Node }) {
  const links = useQuery(appQueries.objectLinks(appKey, node)).data;
  if (!links?.items.length && !links?.problems?.length) return null;
  return (
    <section aria-label={t('Links')}>
      <h4>{t('Links')}</h4>
      <Links links={links} />
    </section>
  );
}

/** Whether there is something to show. */
export function useApplicationLinks(appKey: AppKey): boolean {
  const links = useQuery(appQueries.links(appKey)).data;
  return (links?.items.length ?? 0) + (links?.problems?.length ?? 0) > 0;
}

function Links({ links }: { links: Declared | undefined }) {
  return (
    <>
      {links?.items.map((l) => {
        const url = safeURL(l.url);
        if (!url) return null;
        return (
          <Tooltip key={l.title + l.url} label={l.description} disabled={!l.description} multiline maw={320}>
            <Anchor href={url} target="_blank" rel="noopener noreferrer" size="sm" mr="xs" className="breakable">
              <IconExternalLink size={12} aria-hidden /> {l.title}
            </Anchor>
          </Tooltip>
        );
      })}
      {links?.problems?.map((problem) => (
        <Text key={problem} size="xs" c="dimmed" className="breakable">
          {t('A link is left out: {{problem}}', { problem })}
        </Text>
      ))}
    </>
  );
}
