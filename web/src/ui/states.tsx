import { Alert, Anchor, Button, Center, Stack, Text, Title } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import type { ReactNode } from 'react';
import { refused, words, worthRetrying } from '../api/errors';
import { under } from '../api/root';
import { t } from '../texts';
import { Brand } from './shapes';
import './states.css';

/** What went wrong, what to do, and the reference for a report. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const said = words(error);
  return (
    <Alert color="red" icon={<IconAlertTriangle aria-hidden />} title={said.title} role="alert">
      <Stack gap="xs" align="flex-start">
        {said.fix && <Text size="sm">{said.fix}</Text>}
        {said.reference && (
          <Text size="xs">
            {t('For a report:')} <code>{said.reference}</code>
          </Text>
        )}
        {retry && worthRetrying(error) && (
          <Button size="xs" variant="default" onClick={retry}>
            {t('Try again')}
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

/** What an address that leads nowhere shows. */
export function NoPage() {
  return (
    <Center component="main" mih={240} p="md">
      <Stack align="center">
        <Brand />
        <Title order={2}>{t('There is no such page.')}</Title>
        <Anchor href={under('/applications')}>{t('Go to the applications')}</Anchor>
      </Stack>
    </Center>
  );
}

/** What a list shows that has nothing in it, and what to do about that. */
export function Nothing({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Center mih={200} p="md">
      <Stack align="center" gap="xs" maw={560}>
        <Text fw={600} ta="center">
          {title}
        </Text>
        {children && (
          <Text c="dimmed" ta="center" component="div" className="nothing-more">
            {children}
          </Text>
        )}
      </Stack>
    </Center>
  );
}

/** What somebody sees instead of what they may not see: which right is missing, and whom to ask. */
function Refused({ error }: { error: unknown }) {
  const { title, fix } = words(error);
  return (
    <div role="alert">
      <Nothing title={title}>{fix}</Nothing>
    </div>
  );
}

/** One shell for the four states of a screen: loading, error, empty, content. */
export function Screen<T>(props: {
  query: { data: T | undefined; error: unknown; isPending: boolean; refetch: () => unknown };
  empty?: (data: T) => ReactNode;
  children: (data: T) => ReactNode;
}) {
  const { query, empty, children } = props;
  if (query.data !== undefined) return <>{empty?.(query.data) ?? children(query.data)}</>;
  if (query.isPending) {
    return (
      <div className="skeleton" role="status" aria-label={t('Loading')}>
        {[62, 48, 70, 55, 66].map((width) => (
          <span key={width} aria-hidden>
            <i />
            <i data-width={width} />
            <i />
          </span>
        ))}
      </div>
    );
  }
  if (refused(query.error)) return <Refused error={query.error} />;
  return <Problem error={query.error} retry={() => query.refetch()} />;
}
