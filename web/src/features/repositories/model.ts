import type { Repository } from '../../api/client';
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
  { key: 'none', label: 'None: it is public, or a template has it', over: 'https', fields: [] },
  {
    key: 'password',
    label: 'User name and password or token',
    over: 'https',
    fields: [text('username', 'User name'), secret('password', 'Password or token')],
  },
  { key: 'bearer', label: 'Bearer token', over: 'https', gitOnly: true, fields: [secret('bearerToken', 'Token')] },
  {
    key: 'ssh',
    label: 'SSH key',
    over: 'ssh',
    fields: [block('sshPrivateKey', 'SSH private key', 'Without a passphrase.')],
  },
  {
    key: 'tls',
    label: 'Client certificate',
    over: 'https',
    fields: [
      block('tlsClientCertData', 'Certificate', 'In PEM.'),
      block('tlsClientCertKey', 'Private key', 'In PEM, without a passphrase.'),
    ],
  },
  {
    key: 'github',
    label: 'GitHub App',
    over: 'https',
    gitOnly: true,
    fields: [
      { key: 'githubAppID', label: 'App id', kind: 'number' },
      { key: 'githubAppInstallationID', label: 'Installation id', kind: 'number', about: 'Empty: it is found.' },
      block('githubAppPrivateKey', 'Private key of the app', 'In PEM.'),
      text('githubAppEnterpriseBaseUrl', 'API of GitHub Enterprise', 'Such as https://github.example.com/api/v3.'),
    ],
  },
  {
    key: 'google',
    label: 'Google service account',
    over: 'https',
    gitOnly: true,
    fields: [block('gcpServiceAccountKey', 'Key of the account', 'The JSON file.')],
  },
  {
    key: 'azure-principal',
    label: 'Azure service principal',
    over: 'https',
    gitOnly: true,
    fields: [
      text('azureServicePrincipalTenantId', 'Tenant id'),
      text('azureServicePrincipalClientId', 'Client id'),
      secret('azureServicePrincipalClientSecret', 'Client secret'),
      text('azureActiveDirectoryEndpoint', 'Endpoint of the directory', 'Empty: the public cloud.'),
    ],
  },
  {
    key: 'azure',
    label: 'Workload identity in Azure',
    over: 'https',
    gitOnly: true,
    fields: [{ key: 'useAzureWorkloadIdentity', label: 'Use the identity of the hub', kind: 'switch' }],
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
