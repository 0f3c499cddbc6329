import { useEffect } from 'react';
import { t } from '../texts';

/** The places of the console by their addresses. */
const places = new Map([
  ['overview', t('Overview')],
  ['applications', t('Applications')],
  ['applicationsets', t('ApplicationSets')],
  ['clusters', t('Clusters')],
  ['resources', t('Resources')],
  ['repositories', t('Repositories')],
  ['projects', t('Projects')],
  ['activity', t('Activity')],
  ['access', t('Access')],
  ['settings', t('Settings')],
  ['platform', t('Platform')],
  ['account', t('Account')],
]);

/** The title of a page, as tabs and the history of a browser show it: the innermost first. */
export function pageTitle(path: string, tenant: string): string {
  const [place = '', ...inner] = path.split('/').filter(Boolean).map(decodeURIComponent);
  const word =
    ((path === '/applications/new' && t('New application')) ||
      (path === '/applicationsets/new' && t('New ApplicationSet')) ||
      (path === '/settings/notifications' && t('Notifications')) ||
      inner.at(-1)) ??
    places.get(place) ??
    place;
  return [word, tenant, 'Capstan'].filter(Boolean).join(' · ');
}

/** Gives the document the title of the page. */
export function usePageTitle(path: string, tenant: string) {
  useEffect(() => {
    document.title = pageTitle(path, tenant);
  }, [path, tenant]);
}
