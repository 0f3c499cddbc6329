import type { Row } from './model';

/** The topics of the settings, in the order of their tabs; the first that fits has a key. */
export const topics = [
  { key: 'appearance', label: 'Appearance and help', fits: /^(url$|additionalUrls|ui\.|help\.|statusbadge\.|ga\.)/ },
  {
    key: 'sign-in',
    label: 'Sign-in',
    fits: /^(oidc\.|dex\.|users\.|accounts|admin\.|server\.secretkey|passwordPattern)/,
  },
  { key: 'policy', label: 'Policy', fits: /^(policy\.|scopes$|server\.rbac)/ },
  { key: 'objects', label: 'Objects', fits: /^(resource\.|application\.|timeout\.|installationID)/ },
  { key: 'tools', label: 'Tools', fits: /^(kustomize|helm|jsonnet|configManagementPlugins|reposerver)/ },
  { key: 'links', label: 'Links and events', fits: /(^|\.)links$|^webhook\.|^extension\./ },
] as const;

/** The topic of a key; what fits none is advanced. */
export function topicOf(row: Pick<Row, 'key'>): string {
  return topics.find((t) => t.fits.test(row.key))?.key ?? 'advanced';
}
