import { useEffect } from 'react';
import { t } from '../texts';

/** The title of a page, as tabs and the history of a browser show it: the innermost first. */
export function pageTitle(path: string, tenant: string): string {
  const [place = '', ...inner] = path.split('/').filter(Boolean).map(decodeURIComponent);
  if (path === '/applications/new') return [t('New application'), tenant, 'Capstan'].filter(Boolean).join(' · ');
  const word = inner.at(-1) ?? place.slice(0, 1).toUpperCase() + place.slice(1);
  return [word, tenant, 'Capstan'].filter(Boolean).join(' · ');
}

/** Gives the document the title of the page. */
export function usePageTitle(path: string, tenant: string) {
  useEffect(() => {
    document.title = pageTitle(path, tenant);
  }, [path, tenant]);
}
