import { t } from '../../texts';
import type { Row } from './model';

/** The topics of the settings, in the order of their tabs; the first that fits has a key. */
export const topics = [
  { key: 'appearance', label: t('Appearance and help'), fits: /^(url$|additionalUrls|ui\.|help\.|statusbadge\.|ga\.)/ },
  {
    key: 'sign-in',
    label: t('Sign-in'),
    fits: /^(oidc\.|dex\.|users\.|accounts|admin\.|server\.secretkey|passwordPattern)/,
  },
  { key: 'policy', label: t('Policy'), fits: /^(policy\.|scopes$|server\.rbac)/ },
  { key: 'objects', label: t('Objects'), fits: /^(resource\.|application\.|timeout\.|installationID)/ },
  { key: 'tools', label: t('Tools'), fits: /^(kustomize|helm|jsonnet|configManagementPlugins|reposerver)/ },
  { key: 'links', label: t('Links and events'), fits: /(^|\.)links$|^webhook\.|^extension\./ },
] as const;

/** The topic of a key; what fits none is advanced. */
export function topicOf(row: Pick<Row, 'key'>): string {
  return topics.find((topic) => topic.fits.test(row.key))?.key ?? 'advanced';
}
