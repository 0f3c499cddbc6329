import type { Repository } from '../../api/client';
import { t } from '../../texts';
import type { RepositoryInput } from './api';

/** Says whether an address is fetched over SSH: ssh://… or the short form user@host:path. */
export const overSSH = (url: string) =>
  /^\s*(ssh|git\+ssh|ssh\+git):\/\//i.test(url) || /^\s*[^/:\s]+:(?!\/\/)/.test(url);

/** What is wrong with the connection of a repository, without its address, which stands beside it. */
export const problemOf = (r: Repository) => (r.connection.message ?? '').replace(`repository ${r.url}: `, '');

/** One field of a credential in a form. */
export interface Field {
  key: keyof RepositoryInput;
  label: string;
  kind: 'text' | 'secret' | 'block' | 'number' | 'switch';
  about?: string;
}

/** A kind of credential, for which sources it is, and what it consists of. */
export interface CredentialKind {
  key: string;
  label: string;
  /** It is for addresses of SSH, of https, or both. */
  over: 'ssh' | 'https';
  gitOnly?: boolean;
  fields: readonly Field[];
}

const text = (key: Field['key'], label: string, about?: string): Field => ({
  key,
  label,
  kind: 'text',
  ...(about ? { about } : {}),
});
const secret = (key: Field['key'], label: string): Field => ({ key, label, kind: 'secret' });
const block = (key: Field['key'], label: string, about: string): Field => ({ key, label, kind: 'block', about });

export const kinds: readonly CredentialKind[] = [
  { key: 'none', label: t('None: it is public, or a template has it'), over: 'https', fields: [] },
  {
    key: 'password',
    label: t('User name and password or token'),
    over: 'https',
    fields: [text('username', t('User name')), secret('password', t('Password or token'))],
  },
  {
    key: 'bearer',
    label: t('Bearer token'),
    over: 'https',
    gitOnly: true,
    fields: [secret('bearerToken', t('Token'))],
  },
  {
    key: 'ssh',
    label: t('SSH key'),
    over: 'ssh',
    fields: [block('sshPrivateKey', t('SSH private key'), t('Without a passphrase.'))],
  },
  {
    key: 'tls',
    label: t('Client certificate'),
    over: 'https',
    fields: [
      block('tlsClientCertData', t('Certificate'), t('In PEM.')),
      block('tlsClientCertKey', t('Private key'), t('In PEM, without a passphrase.')),
    ],
  },
  {
    key: 'github',
    label: t('GitHub App'),
    over: 'https',
    gitOnly: true,
    fields: [
      { key: 'githubAppID', label: t('App id'), kind: 'number' },
      { key: 'githubAppInstallationID', label: t('Installation id'), kind: 'number', about: t('Empty: it is found.') },
      block('githubAppPrivateKey', t('Private key of the app'), t('In PEM.')),
      text(
        'githubAppEnterpriseBaseUrl',
        t('API of GitHub Enterprise'),
        t('Such as https://github.example.com/api/v3.'),
      ),
    ],
  },
  {
    key: 'google',
    label: t('Google service account'),
    over: 'https',
    gitOnly: true,
    fields: [block('gcpServiceAccountKey', t('Key of the account'), t('The JSON file.'))],
  },
  {
    key: 'azure-principal',
    label: t('Azure service principal'),
    over: 'https',
    gitOnly: true,
    fields: [
      text('azureServicePrincipalTenantId', t('Tenant id')),
      text('azureServicePrincipalClientId', t('Client id')),
      secret('azureServicePrincipalClientSecret', t('Client secret')),
      text('azureActiveDirectoryEndpoint', t('Endpoint of the directory'), t('Empty: the public cloud.')),
    ],
  },
  {
    key: 'azure',
    label: t('Workload identity in Azure'),
    over: 'https',
    gitOnly: true,
    fields: [{ key: 'useAzureWorkloadIdentity', label: t('Use the identity of the hub'), kind: 'switch' }],
  },
];

/** What a form holds: texts and switches by field. */
export type Form = Partial<Record<keyof RepositoryInput, string | boolean>>;

/** The kinds that fit an address and a type. */
export function kindsFor(url: string, type: string): CredentialKind[] {
  const ssh = overSSH(url);
  return kinds.filter((k) => k.key === 'none' || ((k.over === 'ssh') === ssh && (type === 'git' || !k.gitOnly)));
}

const numbers: readonly (keyof RepositoryInput)[] = ['githubAppID', 'githubAppInstallationID', 'depth'];

/** What is sent of a form: the fields of its kind and the common ones that are filled. */
export function inputOf(form: Form, kind: CredentialKind | undefined): RepositoryInput {
  const common: (keyof RepositoryInput)[] = [
    'type',
    'name',
    'project',
    'insecure',
    'enableOCI',
    'insecureOCIForceHttp',
    'proxy',
    'noProxy',
    'enableLfs',
    'depth',
  ];
  const out: Record<string, string | number | boolean> = {};
  for (const key of [...common, ...(kind?.fields.map((f) => f.key) ?? [])]) {
    const value = form[key];
    if (value === undefined || value === '' || value === false) continue;
    out[key] = numbers.includes(key) ? Number(value) : value;
  }
  return { ...out, url: String(form.url ?? '').trim() };
}

/** A credential template in the form of Argo CD's Secret. */
export function templateOf(name: string, form: Form, kind: CredentialKind | undefined): string {
  const { url, ...rest } = inputOf(form, kind);
  const data = Object.entries({ url, ...rest }).map(([k, v]) => `  ${k}: ${JSON.stringify(String(v))}`);
  return [
    'apiVersion: v1',
    'kind: Secret',
    'metadata:',
    `  name: ${JSON.stringify(name)}`,
    '  labels: {argocd.argoproj.io/secret-type: repo-creds}',
    'stringData:',
    ...data,
    '',
  ].join('\n');
}
