import { Popover, Stack, Text, UnstyledButton } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import type { Application } from '../../api/client';
import type { ApplicationWindows } from '../../api/windows';
import { exact } from '../../format/format';
import { t } from '../../texts';
import { StateMark } from '../../ui/badges';
import type { Tone } from '../../ui/shapes';
import { clock, WindowTable } from '../../ui/sync-windows';
import { appQueries } from './api';

/** How the sync windows of an application stand, in one word and one line. */
export function summary(w: ApplicationWindows): { word: string; tone: Tone; line: string } {
  const zone = w.assignedWindows.find((x) => x.timeZone)?.timeZone;
  const change = clock(w.automated.nextChange, zone);
  if (w.automated.allowed)
    return { word: t('Open'), tone: 'ok', line: change ? t('closes {{time}}', { time: change }) : t('stays open') };
  if (w.canSync) {
    return {
      word: t('Closed for automation'),
      tone: 'attention',
      line: change ? t('by hand only, opens {{time}}', { time: change }) : t('by hand only, no opening is in sight'),
    };
  }
  return {
    word: t('Closed'),
    tone: 'attention',
    line: change ? t('opens {{time}}', { time: change }) : t('no opening is in sight'),
  };
}

/** The state of an application's sync windows, with all of them on demand. */
export function AppWindows({ app, label }: { app: Application; label: string }) {
  const key = { namespace: app.metadata.namespace ?? 'argocd', name: app.metadata.name };
  const windows = useQuery(appQueries.windows(key, app.spec));
  const w = windows.data;
  if (!w || w.assignedWindows.length === 0) return null;
  const s = summary(w);
  return (
    <Stack gap={4} role="group" aria-label={label}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Popover position="bottom-start" withArrow width="min(60rem, 95vw)">
        <Popover.Target>
          <UnstyledButton
            aria-label={t('{{label}}: {{word}}, {{line}}. Show them.', { label, word: s.word, line: s.line })}
          >
            <StateMark look={{ label: s.word, tone: s.tone, shape: s.tone === 'ok' ? 'done' : 'hand' }} />
          </UnstyledButton>
        </Popover.Target>
        <Popover.Dropdown>
          <WindowTable windows={w.assignedWindows} label={t('Sync windows of the application')} />
        </Popover.Dropdown>
      </Popover>
      <Text size="xs" c="dimmed" title={exact(w.automated.nextChange)}>
        {s.line}
      </Text>
    </Stack>
  );
}
