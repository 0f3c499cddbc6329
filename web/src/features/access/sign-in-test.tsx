import { Alert, Button, Group, PasswordInput, SegmentedControl, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { absolute } from '../../api/client';
import { sentence } from '../../api/errors';
import { under } from '../../api/root';
import { useDenied } from '../../api/session';
import { Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { CodeEditor } from '../../ui/code-editor';
import { Command, SectionTitle } from '../../ui/page';
import { Problem, Screen } from '../../ui/states';
import { accessMutations, accessQueries, type SignInTest, type SignInValues, type StoredSignIn } from './api';
import { referencesOf, webAddress } from './model';
import './sign-in-test.css';

type Key = 'oidc.config' | 'dex.config';

const samples: Record<Key, string> = {
  'oidc.config': `name: My provider
issuer: https://id.example.com
clientID: capstan
clientSecret: $oidc.clientSecret
requestedScopes: [openid, profile, email, groups]
`,
  'dex.config': `connectors:
  - type: github
    id: github
    name: GitHub
    config:
      clientID: $dex.github.clientID
      clientSecret: $dex.github.clientSecret
      orgs:
        - name: my-org
`,
};

const callbacks: Record<Key, string> = {
  'oidc.config': under('/auth/callback'),
  'dex.config': under('/api/dex/callback'),
};

interface Props {
  /** Id of the test that the page shows; empty: none. */
  test: string;
  show: (test: string | undefined) => void;
}

/** Sets an identity provider up: its configuration, a sign-in that is only a test, and then what is stored. */
export function SignInSetup({ test, show }: Props) {
  const stored = useQuery(accessQueries.signIn());
  return (
    <section aria-label={t('Set up single sign-on')}>
      <SectionTitle>{t('Set up single sign-on')}</SectionTitle>
      <Screen query={stored}>
        {(d) => <Setup key={JSON.stringify(d.values)} stored={d} test={test} show={show} />}
      </Screen>
    </section>
  );
}

function Setup({ stored, test, show }: Props & { stored: StoredSignIn }) {
  const denied = useDenied('settings', 'update');
  const [key, setKey] = useState<Key>(
    stored.values['dex.config'] && !stored.values['oidc.config'] ? 'dex.config' : 'oidc.config',
  );
  const [texts, setTexts] = useState<Partial<Record<Key, string>>>({});
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const [connector, setConnector] = useState('');
  /** The draft that the last test was about, by its id. */
  const [tested, setTested] = useState<{ id: string; of: string }>();
  const begin = useMutation(accessMutations.startTest());
  const save = useMutation(accessMutations.saveSignIn());
  const outcome = useQuery({ ...accessQueries.test(test), enabled: test !== '' });

  const text = texts[key] ?? stored.values[key] ?? samples[key];
  const references = referencesOf(text);
  const given = Object.fromEntries(Object.entries(secrets).filter(([name, v]) => v && references.includes(name)));
  const draft = JSON.stringify([key, text, given]);
  const passed = tested !== undefined && tested.id === test && tested.of === draft && outcome.data?.state === 'passed';
  const values: SignInValues = { [key]: text };
  const address = webAddress(begin.data?.url ?? '');
  const start = () =>
    begin.mutate(
      { provider: key === 'oidc.config' ? 'oidc' : connector ? `dex-${connector}` : '', values, secrets: given },
      {
        onSuccess: (begun) => {
          setTested({ id: begun.id, of: draft });
          show(begun.id);
        },
      },
    );
  return (
    <Stack gap="sm" className="sign-in-setup">
      <SegmentedControl
        aria-label={t('Kind of provider')}
        size="xs"
        value={key}
        data={[
          { value: 'oidc.config', label: t('OpenID Connect') },
          { value: 'dex.config', label: t('GitHub, SAML and others') },
        ]}
        onChange={(next) => setKey(next === 'dex.config' ? 'dex.config' : 'oidc.config')}
      />
      <Text size="sm">
        <Rich
          text="1. Register this address at the provider, and write what it gave you into <key/>."
          parts={{ key: <code>{key}</code> }}
        />
      </Text>
      <Command text={absolute(callbacks[key])} />
      <CodeEditor
        key={key}
        label={t('Configuration of the provider: {{key}}', { key })}
        language="yaml"
        value={text}
        {...(denied ? {} : { change: (value: string) => setTexts((held) => ({ ...held, [key]: value })) })}
      />
      {references.map((name) => (
        <PasswordInput
          key={name}
          label={t('Secret {{reference}}', { reference: `$${name}` })}
          description={t('Empty: the one that is stored is used.')}
          autoComplete="off"
          value={secrets[name] ?? ''}
          readOnly={denied !== ''}
          onChange={(e) => {
            const { value } = e.currentTarget;
            setSecrets((held) => ({ ...held, [name]: value }));
          }}
        />
      ))}
      {key === 'dex.config' && (
        <TextInput
          label={t('Connector to test')}
          description={t(
            'Its id; empty: the first one. Those that check a name and a password are tested on the sign-in page.',
          )}
          value={connector}
          onChange={(e) => setConnector(e.currentTarget.value)}
        />
      )}
      <Text size="sm">
        {t(
          '2. Test it. A test runs a whole sign-in of yours, and makes no session and no account. Nobody else is offered the provider meanwhile.',
        )}
      </Text>
      {begin.error && <Problem error={begin.error} />}
      <Group gap="xs">
        <ActionButton why={denied} variant={passed ? 'default' : 'filled'} loading={begin.isPending} onClick={start}>
          {t('Test the sign-in')}
        </ActionButton>
        {address && tested?.id === test && outcome.data?.state === 'waiting' && (
          <Button component="a" target="_blank" rel="noreferrer" href={address}>
            {t('Go to {{name}}', { name: begin.data?.provider ?? '' })}
          </Button>
        )}
      </Group>
      {test !== '' && <Screen query={outcome}>{(d) => <Report test={d} />}</Screen>}
      <Text size="sm">{t('3. Store what has passed. The sign-in page then offers the provider to everybody.')}</Text>
      {save.error && <Problem error={save.error} />}
      <Group gap="xs">
        <ActionButton
          why={denied || (passed ? '' : t('A test of exactly this configuration has to pass first.'))}
          loading={save.isPending}
          onClick={() => save.mutate({ version: stored.version, values, secrets: given })}
        >
          {t('Store and offer it')}
        </ActionButton>
        {save.isSuccess && <StateMark look={{ label: t('Stored'), tone: 'ok', shape: 'done' }} weight="quiet" />}
      </Group>
      <Locals enabled={stored.locals} />
    </Stack>
  );
}

/** What still lets people in if the provider does not. */
function Locals({ enabled }: { enabled: boolean }) {
  return (
    <Alert color={enabled ? 'gray' : 'yellow'} role="note" title={t('The way back in')}>
      <Text size="sm">
        {enabled
          ? t(
              'Local accounts sign in with their passwords as well. They do so until admin.enabled is false. Before that, give one account of yours the capability login, as in accounts.admin: login.',
            )
          : t('Local accounts sign in no more unless they have the capability login.')}{' '}
        <Rich
          text="Whatever is set, the operator of the hub makes a setup link with <code/>."
          parts={{ code: <code>capstan-hub setup-link</code> }}
        />
      </Text>
      <Link to="/settings" search={{ q: 'admin.enabled' }}>
        {t('Settings of local accounts')}
      </Link>
    </Alert>
  );
}

const looks = {
  waiting: { label: t('Waits for you at the provider'), tone: 'working', shape: 'progressing' },
  passed: { label: t('The sign-in works'), tone: 'ok', shape: 'done' },
  failed: { label: t('Nobody would be signed in'), tone: 'failed', shape: 'barred' },
} as const;

/** What a test has shown. */
export function Report({ test }: { test: SignInTest }) {
  return (
    <section aria-label={t('Outcome of the test')} className="sign-in-report">
      <StateMark look={looks[test.state]} />
      {test.state === 'waiting' && (
        <Text size="sm" c="dimmed" className="breakable">
          {t('If {{provider}} shows an error about a redirect, it does not know the address {{address}}.', {
            provider: test.provider,
            address: test.callback,
          })}
        </Text>
      )}
      {test.problem && (
        <Alert color="red" role="alert" title={sentence(test.problem.cause)}>
          <Text size="sm" className="breakable">
            {test.problem.object && `${test.problem.object}. `}
            {test.problem.fix && sentence(test.problem.fix)}
          </Text>
        </Alert>
      )}
      {test.warnings?.map((w) => (
        <Alert key={w} color="yellow" role="note" title={t('Note')}>
          <Text size="sm" className="breakable">
            {w}
          </Text>
        </Alert>
      ))}
      {test.state === 'passed' && (
        <Text size="sm" className="breakable">
          {test.accountExists ? (
            <Rich text="It would be the account <b/>." parts={{ b: <b>{test.account}</b> }} />
          ) : (
            <Rich
              text="It would be the account <b/>, which the first sign-in makes."
              parts={{ b: <b>{test.account}</b> }}
            />
          )}
        </Text>
      )}
      {test.mapped && <Mapped mapped={test.mapped} />}
      {test.permissions && test.permissions.length > 0 && <Rights all={test.permissions} />}
      {test.claims && test.claims.length > 0 && <Claims all={test.claims} />}
    </section>
  );
}

function Mapped({ mapped }: { mapped: NonNullable<SignInTest['mapped']> }) {
  return (
    <Table aria-label={t('What policies may name')}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Group or claim')}</Table.Th>
          <Table.Th>{t('Roles that follow')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {mapped.map((m) => (
          <Table.Tr key={m.subject}>
            <Table.Td className="breakable">{m.subject}</Table.Td>
            <Table.Td className="breakable">
              {m.roles.length > 0 ? (
                m.roles.join(', ')
              ) : (
                <Text c="dimmed" size="sm">
                  {m.named ? t('rules of its own') : t('none: no policy names it')}
                </Text>
              )}
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What the person could do, a line for each resource. */
function Rights({ all }: { all: NonNullable<SignInTest['permissions']> }) {
  const byResource = new Map<string, string[]>();
  for (const p of all) {
    const where = p.all ? '' : ` (${p.projects.join(', ')})`;
    byResource.set(p.resource, [...(byResource.get(p.resource) ?? []), p.action + where]);
  }
  return (
    <Table aria-label={t('Rights that follow')}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('On')}</Table.Th>
          <Table.Th>{t('The person could')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {[...byResource].map(([resource, actions]) => (
          <Table.Tr key={resource}>
            <Table.Td>{resource}</Table.Td>
            <Table.Td className="breakable">{actions.join(', ')}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Claims({ all }: { all: NonNullable<SignInTest['claims']> }) {
  return (
    <Table aria-label={t('Claims received')}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Claim received')}</Table.Th>
          <Table.Th>{t('Values')}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {all.map((c) => (
          <Table.Tr key={c.name}>
            <Table.Td className="breakable">
              <code>{c.name}</code>
            </Table.Td>
            <Table.Td className="breakable">{c.values.join(', ')}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
