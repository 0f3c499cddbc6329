import { Badge, Table, Text } from '@mantine/core';
import type { SyncWindow } from '../api/windows';
import { dateLanguage, exact } from '../format/format';
import { Rich, t } from '../texts';

/** When a window changes next, in words; in its own zone where the browser knows it. */
export function clock(moment: string | undefined, zone: string | undefined): string {
  if (!moment) return '';
  const format = (timeZone: string) =>
    new Intl.DateTimeFormat(dateLanguage, {
      weekday: 'short',
      day: 'numeric',
      month: 'short',
      hour: '2-digit',
      minute: '2-digit',
      timeZone,
      timeZoneName: 'short',
    }).format(new Date(moment));
  try {
    return format(zone || 'UTC');
  } catch {
    return format('UTC');
  }
}

/** What a window concerns, in words. */
export function concerns(w: SyncWindow): string {
  const parts = [
    w.applications?.length ? t('applications {{names}}', { names: w.applications.join(', ') }) : '',
    w.namespaces?.length ? t('namespaces {{names}}', { names: w.namespaces.join(', ') }) : '',
    w.clusters?.length ? t('clusters {{names}}', { names: w.clusters.join(', ') }) : '',
  ].filter(Boolean);
  if (parts.length === 0) return t('nothing');
  return parts.reduce((one, other) =>
    w.andOperator ? t('{{one}} and {{other}}', { one, other }) : t('{{one}} or {{other}}', { one, other }),
  );
}

/** What may go on while a window closes an application, in words. */
export function exceptions(w: SyncWindow): string {
  return [
    w.manualSync ? t('sync by hand') : '',
    w.syncOverrun ? t('what has begun') : '',
    w.selfHeal ? t('self-heal') : '',
  ]
    .filter(Boolean)
    .join(', ');
}

function Status({ window: w }: { window: SyncWindow }) {
  const [word, color] = w.error
    ? [t('Unreadable'), 'red']
    : w.active
      ? [t('Active'), w.kind === 'deny' ? 'yellow' : 'teal']
      : [t('Inactive'), 'gray'];
  return (
    <Badge variant="light" color={color}>
      {word}
    </Badge>
  );
}

/** Sync windows with their next opening and closing. */
export function WindowTable({ windows, label }: { windows: SyncWindow[]; label: string }) {
  return (
    <Table.ScrollContainer minWidth={720} type="native" tabIndex={0}>
      <Table aria-label={label}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Status')}</Table.Th>
            <Table.Th>{t('Kind')}</Table.Th>
            <Table.Th>{t('Schedule')}</Table.Th>
            <Table.Th>{t('Begins next')}</Table.Th>
            <Table.Th>{t('Ends')}</Table.Th>
            <Table.Th>{t('Concerns')}</Table.Th>
            <Table.Th>{t('Goes on while closed')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {windows.map((w, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a window has no name but its place
            <Table.Tr key={i}>
              <Table.Td>
                <Status window={w} />
              </Table.Td>
              <Table.Td>{w.kind}</Table.Td>
              <Table.Td>
                <Rich
                  text="<schedule/> for <duration/>"
                  parts={{ schedule: <code>{w.schedule}</code>, duration: <>{w.duration}</> }}
                />
                <Text size="xs" c="dimmed">
                  {w.timeZone || 'UTC'}
                  {w.description ? ` · ${w.description}` : ''}
                </Text>
              </Table.Td>
              <Table.Td title={exact(w.opens)}>{clock(w.opens, w.timeZone) || t('never')}</Table.Td>
              <Table.Td title={exact(w.closes)}>
                {w.active ? clock(w.closes, w.timeZone) || t('not within a year') : '–'}
              </Table.Td>
              <Table.Td>{concerns(w)}</Table.Td>
              <Table.Td>{w.error || exceptions(w) || t('nothing')}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
