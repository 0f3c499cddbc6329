import { ActionIcon, Anchor, Button, CloseButton, Menu } from '@mantine/core';
import { IconHelpCircle } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { sentence } from '../api/errors';
import { type AutomationPause, noticeMutations, noticeQueries } from '../api/notices';
import { under } from '../api/root';
import { useDenied } from '../api/session';
import { ago, exact } from '../format/format';
import { Rich, t } from '../texts';
import { StateMark } from '../ui/badges';

/** What everybody should know, above or below every page. */
export function Notices({ place }: { place: 'top' | 'bottom' }) {
  const client = useQuery(noticeQueries.client());
  return (
    <>
      <Banner place={place} banner={client.data?.banner} />
      {place === 'top' && <Pauses />}
    </>
  );
}

interface BannerOf {
  content: string;
  url?: string;
  permanent: boolean;
  position: 'top' | 'bottom' | 'both';
}

/** The banner of the tenant. Closing it holds for this text, in this tab. */
function Banner({ place, banner }: { place: 'top' | 'bottom'; banner: BannerOf | undefined }) {
  const [closed, setClosed] = useState('');
  if (!banner?.content || (banner.position !== 'both' && banner.position !== place)) return null;
  if (!banner.permanent && closed === banner.content) return null;
  return (
    <aside className="notice banner" aria-label={place === 'top' ? t('Banner at the top') : t('Banner at the bottom')}>
      {banner.url ? (
        <Anchor href={banner.url} target="_blank" rel="noreferrer">
          {banner.content}
        </Anchor>
      ) : (
        <span>{banner.content}</span>
      )}
      {!banner.permanent && (
        <CloseButton size="sm" ml="auto" aria-label={t('Close the banner')} onClick={() => setClosed(banner.content)} />
      )}
    </aside>
  );
}

const paused = { label: t('Paused'), tone: 'paused', shape: 'suspended' } as const;

function Pauses() {
  const pauses = useQuery(noticeQueries.pauses());
  const denied = useDenied('clusters', 'override');
  const resume = useMutation(noticeMutations.resume());
  return pauses.data?.items.map((p) => (
    <aside
      className="notice paused"
      key={p.cluster ?? ''}
      aria-label={
        p.cluster ? t('Automation is paused on {{cluster}}', { cluster: p.cluster }) : t('All automation is paused')
      }
    >
      <StateMark look={paused} weight="quiet" />
      <span>
        <PauseText pause={p} />
      </span>
      {!denied && (
        <Button size="compact-sm" variant="default" loading={resume.isPending} onClick={() => resume.mutate(p.cluster)}>
          {t('Resume automation')}
        </Button>
      )}
    </aside>
  ));
}

/** What is paused, by whom, since and until when, and why. */
function PauseText({ pause: p }: { pause: AutomationPause }) {
  const parts = {
    by: <>{p.by}</>,
    since: <span title={exact(p.since)}>{ago(p.since, Date.now())}</span>,
    until: <>{exact(p.until)}</>,
    reason: <>{sentence(p.reason)}</>,
  };
  return p.cluster ? (
    <Rich
      text="Automation is paused on <cluster/> by <by/> <since/>, until <until/>: <reason/>"
      parts={{ ...parts, cluster: <>{p.cluster}</> }}
    />
  ) : (
    <Rich text="Automation is paused on every cluster by <by/> <since/>, until <until/>: <reason/>" parts={parts} />
  );
}

/** Documentation, whom to ask, and the command line for this tenant. */
export function Help() {
  const help = useQuery(noticeQueries.client()).data?.help;
  const downloads = Object.entries(help?.binaryUrls ?? {}).sort(([a], [b]) => a.localeCompare(b));
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={t('Help')}>
          <IconHelpCircle size={16} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item component="a" href={under('/docs')}>
          {t('Documentation')}
        </Menu.Item>
        {help?.chatUrl && (
          <Menu.Item component="a" href={help.chatUrl} target="_blank" rel="noreferrer">
            {help.chatText || t('Ask for help')}
          </Menu.Item>
        )}
        {downloads.length > 0 && <Menu.Label>{t('Command line')}</Menu.Label>}
        {downloads.map(([platform, url]) => (
          <Menu.Item key={platform} component="a" href={url} rel="noreferrer">
            {platform}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
