import { Alert, Anchor, Text, Tooltip } from '@mantine/core';
import {
  IconAlertCircle,
  IconAlertTriangle,
  IconBell,
  IconClock,
  IconInfoCircle,
  IconLifebuoy,
  IconShield,
  IconSpeakerphone,
  IconTool,
} from '@tabler/icons-react';
import { useState } from 'react';
import type { Application } from '../../api/client';
import { t } from '../../texts';
import { type Annotated, noticeOf } from './annotations';
import { conditionWords } from './model';

const icons: Record<string, typeof IconBell> = {
  'fa-info-circle': IconInfoCircle,
  'fa-exclamation-triangle': IconAlertTriangle,
  'fa-exclamation-circle': IconAlertCircle,
  'fa-bell': IconBell,
  'fa-wrench': IconTool,
  'fa-clock': IconClock,
  'fa-bullhorn': IconSpeakerphone,
  'fa-life-ring': IconLifebuoy,
  'fa-shield-alt': IconShield,
};

const colors = { info: 'blue', warning: 'yellow', critical: 'red' } as const;

/** The message that people put on an application. It can be put away unless it is permanent. */
export function NoticeBanner({ app }: { app: Application }) {
  const [away, setAway] = useState('');
  const notice = noticeOf(app);
  if (!notice || notice.scope === 'icon' || (away === notice.content && !notice.permanent)) return null;
  const Icon = icons[notice.icon] ?? IconInfoCircle;
  return (
    <Alert
      color={colors[notice.severity]}
      icon={<Icon aria-hidden />}
      role={notice.severity === 'critical' ? 'alert' : 'status'}
      withCloseButton={!notice.permanent}
      closeButtonLabel={t('Put the notice away')}
      onClose={() => setAway(notice.content)}
      aria-label={t('Notice')}
    >
      {notice.url ? (
        <Anchor href={notice.url} target="_blank" rel="noopener noreferrer" className="breakable">
          {notice.content}
        </Anchor>
      ) : (
        <Text size="sm" className="breakable">
          {notice.content}
        </Text>
      )}
    </Alert>
  );
}

/** The same, small, for lists. */
export function NoticeIcon({ app }: { app: Annotated }) {
  const notice = noticeOf(app);
  if (!notice || notice.scope === 'banner') return null;
  const Icon = icons[notice.icon] ?? IconInfoCircle;
  const icon = (
    <Icon
      size={16}
      role="img"
      aria-label={t('Notice: {{content}}', { content: notice.content })}
      color={`var(--mantine-color-${colors[notice.severity]}-6)`}
    />
  );
  return (
    <Tooltip label={notice.content} multiline maw={480}>
      {notice.url ? (
        <Anchor href={notice.url} target="_blank" rel="noopener noreferrer">
          {icon}
        </Anchor>
      ) : (
        icon
      )}
    </Tooltip>
  );
}

/** What is wrong with an application itself, small, for lists: what is deployed may be in sync all the same. */
export function ErrorIcon({ app }: { app: Application }) {
  const errors = (app.status?.conditions ?? []).filter((c) => c.type.endsWith('Error'));
  if (errors.length === 0) return null;
  const label = errors.map((c) => `${conditionWords(c.type)}: ${c.message}`).join('\n');
  return (
    <Tooltip label={label} multiline maw={480}>
      <IconAlertTriangle size={16} color="var(--mantine-color-error)" role="img" aria-label={label} />
    </Tooltip>
  );
}
