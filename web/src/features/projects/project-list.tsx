import { Paper, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Nothing, Screen } from '../../ui/states';
import { WindowTable } from '../../ui/sync-windows';
import { projectQueries } from './api';

/** The projects, what they permit, and when their applications may be synchronised. */
export function ProjectList() {
  const projects = useQuery(projectQueries.list());
  return (
    <Stack>
      <Title order={2}>Projects</Title>
      <Screen
        query={projects}
        empty={(d) =>
          d.items.length === 0 ? <Nothing title="You may see no project.">Ask an admin.</Nothing> : undefined
        }
      >
        {(d) => (
          <Stack>
            {d.items.map((p) => (
              <Paper key={p.metadata.name} withBorder p="sm" component="section" aria-label={p.metadata.name}>
                <Title order={3}>{p.metadata.name}</Title>
                <Text size="sm" c="dimmed">
                  {p.spec.description}
                </Text>
                <Text size="sm">
                  Sources: <code>{p.spec.sourceRepos?.join(', ') || 'none'}</code>
                </Text>
                <Text size="sm">
                  Destinations:{' '}
                  <code>
                    {p.spec.destinations
                      ?.map((x) => `${x.name || x.server || '*'} ${x.namespace || ''}`.trim())
                      .join(', ') || 'none'}
                  </code>
                </Text>
                <Windows name={p.metadata.name} any={(p.spec.syncWindows?.length ?? 0) > 0} />
              </Paper>
            ))}
          </Stack>
        )}
      </Screen>
    </Stack>
  );
}

function Windows({ name, any }: { name: string; any: boolean }) {
  const windows = useQuery({ ...projectQueries.windows(name), enabled: any });
  if (!any)
    return (
      <Text size="sm" c="dimmed">
        No sync windows: its applications may be synchronised at any time.
      </Text>
    );
  return <Screen query={windows}>{(d) => <WindowTable windows={d.all} label={`Sync windows of ${name}`} />}</Screen>;
}
