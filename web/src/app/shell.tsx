import { ActionIcon, Menu, Text } from '@mantine/core';
import {
  IconActivity,
  IconApps,
  IconBuilding,
  IconChevronRight,
  IconFolder,
  IconGitBranch,
  IconHome,
  IconKey,
  IconServer2,
  IconSettings,
  IconStack2,
  IconTemplate,
  IconUserCircle,
} from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router';
import { Fragment, useEffect, useRef } from 'react';
import { noticeQueries } from '../api/notices';
import { may, meQuery } from '../api/session';
import { listQueries } from '../features/apps/list/api';
import { loginMutations } from '../features/login/api';
import { exact } from '../format/format';
import { t } from '../texts';
import { useHeadingFocus } from '../ui/focus';
import { LanguageItems, useAccountLanguage } from '../ui/language';
import { Mark } from '../ui/shapes';
import { useLive } from './live';
import { Help, Notices } from './notices';
import { useOwnStyle } from './own-style';
import { usePageTitle } from './page-title';
import { Palette } from './palette';
import { ThemeItems } from './theme-menu';

const places = [
  { to: '/overview', label: t('Overview'), icon: IconHome },
  { to: '/applications', label: t('Applications'), icon: IconApps },
  { to: '/applicationsets', label: t('ApplicationSets'), icon: IconTemplate, right: 'applicationsets' },
  { to: '/clusters', label: t('Clusters'), icon: IconServer2 },
  { to: '/resources', label: t('Resources'), icon: IconStack2, feature: 'resources' },
  { to: '/repositories', label: t('Repositories'), icon: IconGitBranch },
  { to: '/projects', label: t('Projects'), icon: IconFolder },
  { to: '/activity', label: t('Activity'), icon: IconActivity, right: 'audit' },
  { to: '/access', label: t('Access'), icon: IconKey, right: 'accounts', heading: t('Organisation') },
  { to: '/settings', label: t('Settings'), icon: IconSettings, right: 'settings' },
  { to: '/platform', label: t('Platform'), icon: IconBuilding, right: 'tenants' },
] as const;

/** The frame around every page, and the one place that follows the stream. */
export function Shell() {
  const me = useQuery(meQuery);
  const total = useQuery(listQueries.numbers('')).data?.total;
  const { live, asOf } = useLive(useQuery(listQueries.start()).data);
  const features = useQuery(noticeQueries.client()).data?.features;
  const path = useRouterState({ select: (s) => s.location.pathname });
  const tenant = me.data?.tenant ?? '';
  useHeadingFocus(path);
  usePageTitle(path, tenant);
  useOwnStyle();
  useAccountLanguage(me.data?.language);
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the navigation is a bar that scrolls sideways.
    const box = nav.current;
    const here = box?.querySelector<HTMLElement>('[aria-current]');
    if (box && here) box.scrollLeft = here.offsetLeft - (box.clientWidth - here.offsetWidth) / 2;
  }, [path, me.data]);
  return (
    <div className="frame">
      <div className="side">
        <div className="brand">
          <Mark />
          Capstan
        </div>
        <nav aria-label={t('Main')} ref={nav}>
          {places
            .filter((p) => !('right' in p) || may(me.data, p.right, 'get'))
            .filter((p) => !('feature' in p) || features?.[p.feature] !== false)
            .map((p) => (
              <Fragment key={p.to}>
                {'heading' in p && <h2>{p.heading}</h2>}
                <Link to={p.to} aria-current={path === p.to || path.startsWith(`${p.to}/`) ? 'page' : undefined}>
                  <p.icon size={16} stroke={1.75} aria-hidden />
                  {p.label}
                  {p.to === '/applications' && total !== undefined && (
                    <span className="count" aria-hidden>
                      {total}
                    </span>
                  )}
                </Link>
              </Fragment>
            ))}
        </nav>
      </div>
      <header>
        <Crumbs path={path} tenant={tenant} />
        <Palette places={places.filter((p) => !('right' in p) || may(me.data, p.right, 'get'))} />
        {may(me.data, 'applications', 'get') && (
          <div className="live" data-live={live} role="status">
            <span className="dot" aria-hidden />
            {live ? t('Live') : t('Reconnecting …')}
          </div>
        )}
        <Help />
        <Account name={me.data?.username} />
      </header>
      <main>
        <Notices place="top" />
        {!live && asOf !== undefined && (
          <Text role="alert" size="sm" className="offline">
            {t('Reconnecting to the hub. What you see is as of {{time}}.', {
              time: exact(new Date(asOf).toISOString()),
            })}
          </Text>
        )}
        <Outlet />
        <Notices place="bottom" />
      </main>
    </div>
  );
}

/** Pages below a place that are no objects of it. */
const named = new Map([
  ['/applications/new', t('New application')],
  ['/applicationsets/new', t('New ApplicationSet')],
]);

/** Pages that the navigation does not have. */
const others = [{ to: '/account', label: t('Your account') }] as const;

/** Where one is: the organisation, the place, and what is open there. */
function Crumbs({ path, tenant }: { path: string; tenant: string }) {
  const place = [...places, ...others].find((p) => path === p.to || path.startsWith(`${p.to}/`));
  const inner = place ? path.slice(place.to.length).split('/').filter(Boolean).at(-1) : undefined;
  return (
    <ol className="crumbs" aria-label={t('Where you are')}>
      <li className="spare">
        <span className="tenant">
          <span aria-hidden>{tenant.slice(0, 1)}</span>
          {tenant}
        </span>
        <IconChevronRight size={14} aria-hidden />
      </li>
      {place && (
        <li {...(inner ? {} : { 'aria-current': 'page' as const })}>
          {inner ? (
            <Link to={place.to} activeOptions={{ exact: true }}>
              {place.label}
            </Link>
          ) : (
            place.label
          )}
        </li>
      )}
      {inner && (
        <li>
          <IconChevronRight size={14} aria-hidden />
          <span aria-current="page">{named.get(path) ?? decodeURIComponent(inner)}</span>
        </li>
      )}
    </ol>
  );
}

function Account({ name }: { name: string | undefined }) {
  const navigate = useNavigate();
  const signOut = useMutation(loginMutations.signOut(() => navigate({ to: '/login' })));
  return (
    <Menu>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={t('Account')}>
          <IconUserCircle size={18} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{name}</Menu.Label>
        <Menu.Item component={Link} to="/account">
          {t('Your account')}
        </Menu.Item>
        <ThemeItems />
        <LanguageItems />
        <Menu.Divider />
        <Menu.Item onClick={() => signOut.mutate()}>{t('Sign out')}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
