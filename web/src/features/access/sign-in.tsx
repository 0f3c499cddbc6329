import { Button, Group, Stack, Table, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { under } from '../../api/root';
import { meQuery, useDenied } from '../../api/session';
import { Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { Once, SectionTitle } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { accessMutations, accessQueries } from './api';
import { TokenTable } from './members';
import { SignInSetup } from './sign-in-test';

/** The identity providers of the tenant, how one is set up and tested, and who provisions people. */
export function SignIn({ test, show }: { test: string; show: (test: string | undefined) => void }) {
  const tenant = useQuery(meQuery).data?.tenant ?? '';
  const providers = useQuery(accessQueries.providers(tenant));
  return (
    <Stack gap="lg">
      <section aria-label={t('Identity providers')}>
        <SectionTitle
          count={providers.data?.items.length}
          right={
            <Link to="/settings" search={{ q: 'oidc' }}>
              {t('Settings of sign-in')}
            </Link>
          }
        >
          {t('Identity providers')}
        </SectionTitle>
        <Screen
          query={providers}
          empty={(d) =>
            d.items.length === 0 ? (
              <Nothing title={t('People sign in with a name and a password.')}>
                {t('Set one up below to let an identity provider sign them in.')}
              </Nothing>
            ) : undefined
          }
        >
          {(d) => (
            <Table aria-label={t('Identity providers')}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Name')}</Table.Th>
                  <Table.Th>{t('How')}</Table.Th>
                  <Table.Th aria-label={t('Actions')} />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.items.map((p) => (
                  <Table.Tr key={p.id}>
                    <Table.Td>{p.name}</Table.Td>
                    <Table.Td>
                      {p.kind === 'redirect' ? t('The browser is sent there') : t('It checks a name and a password')}
                    </Table.Td>
                    <Table.Td>
                      <Button
                        size="compact-sm"
                        variant="default"
                        component="a"
                        target="_blank"
                        rel="noreferrer"
                        href={under(`/login?tenant=${encodeURIComponent(tenant)}`)}
                      >
                        {t('Open the sign-in')}
                      </Button>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
        </Screen>
      </section>
      <SignInSetup test={test} show={show} />
      <Provisioning />
    </Stack>
  );
}

function Provisioning() {
  const denied = useDenied('accounts', 'create');
  const noDelete = useDenied('accounts', 'delete');
  const noAccounts = useDenied('accounts', 'get');
  const tokens = useQuery({ ...accessQueries.scimTokens(), enabled: !noAccounts });
  const [name, setName] = useState('');
  const create = useMutation(accessMutations.createSCIM());
  const revoke = useMutation(accessMutations.removeSCIM());
  if (noAccounts) return null;
  return (
    <section aria-label={t('Provisioning')}>
      <SectionTitle count={tokens.data?.items.length}>{t('Provisioning by SCIM')}</SectionTitle>
      <Text c="dimmed" mb="xs">
        <Rich
          text="An identity provider creates and removes people at <code/> with one of these tokens."
          parts={{ code: <code>/scim/v2</code> }}
        />
      </Text>
      {create.error && <Problem error={create.error} />}
      <Screen query={tokens}>
        {(d) => (
          <TokenTable
            tokens={d.items}
            label={t('Tokens for SCIM')}
            denied={noDelete}
            revoke={(id) => revoke.mutate(id)}
          />
        )}
      </Screen>
      <Group gap="xs" mt="xs" align="flex-end">
        <TextInput label={t('Name of a new token')} value={name} onChange={(e) => setName(e.currentTarget.value)} />
        <ActionButton
          why={denied}
          variant="default"
          disabled={!name}
          loading={create.isPending}
          onClick={() => create.mutate(name, { onSuccess: () => setName('') })}
        >
          {t('Make a token')}
        </ActionButton>
      </Group>
      {create.data && (
        <Once
          what={t('Token {{name}}', { name: create.data.info.name })}
          secret={create.data.token}
          close={() => create.reset()}
        />
      )}
    </section>
  );
}
