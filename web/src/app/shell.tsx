import { ActionIcon, Badge, Group, Menu, NavLink, Text, Title, useMantineColorScheme } from '@mantine/core';
import {
  IconApps,
  IconFolders,
  IconGitBranch,
  IconMoon,
  IconServer,
  IconSettings,
  IconUserCircle,
} from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router';
import { may, meQuery } from '../api/session';
import { appQueries } from '../features/apps/api';
import { loginMutations } from '../features/login/api';
import { exact } from '../format/format';
import { useHeadingFocus } from '../ui/focus';
import { useLive } from './live';

const places = [
  { to: '/applications', label: 'Applications', icon: IconApps },
  { to: '/projects', label: 'Projects', icon: IconFolders },
  { to: '/clusters', label: 'Clusters', icon: IconServer },
  { to: '/repositories', label: 'Repositories', icon: IconGitBranch },
  { to: '/settings', label: 'Settings', icon: IconSettings, right: 'settings' },
] as const;

/** The frame around every page, and the one place that follows the stream. */
export function Shell() {
  const me = useQuery(meQuery);
  const apps = useQuery(appQueries.list());
  const { live, asOf } = useLive(apps.data?.cursor);
  const path = useRouterState({ select: (s) => s.location.pathname });
  const navigate = useNavigate();
  const scheme = useMantineColorScheme();
  useHeadingFocus(path);
  const signOut = useMutation(loginMutations.signOut(() => navigate({ to: '/login' })));
  return (
    <div className="frame">
      <Group component="header" justify="space-between" wrap="nowrap">
        <Group gap="sm" wrap="nowrap">
          <Title order={1} size="h4">
            Capstan
          </Title>
          <Badge variant="dot" color={live ? 'teal' : 'gray'} role="status">
            {live ? 'Live' : 'Reconnecting …'}
          </Badge>
        </Group>
        <Group gap="xs" wrap="nowrap">
          <Text size="sm" c="dimmed" className="spare">
            {me.data?.tenant}
          </Text>
          <ActionIcon
            variant="subtle"
            aria-label="Switch between light and dark"
            onClick={() => scheme.toggleColorScheme()}
          >
            <IconMoon size={18} aria-hidden />
          </ActionIcon>
          <Menu>
            <Menu.Target>
              <ActionIcon variant="subtle" aria-label="Account">
                <IconUserCircle size={20} aria-hidden />
              </ActionIcon>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Label>{me.data?.username}</Menu.Label>
              <Menu.Item onClick={() => signOut.mutate()}>Sign out</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </Group>
      </Group>
      <nav aria-label="Main">
        {places
          .filter((p) => !('right' in p) || may(me.data, p.right, 'get'))
          .map((p) => (
            <NavLink
              key={p.to}
              label={p.label}
              leftSection={<p.icon size={18} aria-hidden />}
              active={path.startsWith(p.to)}
              renderRoot={(props) => <Link to={p.to} {...props} />}
            />
          ))}
      </nav>
      <main>
        {!live && asOf !== undefined && (
          <Text role="alert" size="sm" className="offline">
            Reconnecting to the hub. What you see is as of {exact(new Date(asOf).toISOString())}.
          </Text>
        )}
        <Outlet />
      </main>
    </div>
  );
}
