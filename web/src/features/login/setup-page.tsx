import { Button, Card, Center, PasswordInput, Stack, Text, TextInput, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate, useRouterState } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Rich, t } from '../../texts';
import { Brand } from '../../ui/shapes';
import { Nothing, Problem, Screen } from '../../ui/states';
import { loginMutations, loginQueries } from './api';

/** The first account of a tenant, from a link that works once. */
export function SetupPage() {
  // The secret stands in the fragment: no server and no log ever sees it.
  // Kept from the first look: while the page is being left, the address has none.
  const hash = useRouterState({ select: (s) => s.location.hash });
  const [token] = useState(hash);
  const check = useQuery(loginQueries.setup(token));
  return (
    <Center mih="100vh" p="md">
      <Card withBorder w={420} maw="100%" padding="xl" component="main">
        <Brand />
        {token === '' ? (
          <Nothing title={t('This setup link is not complete.')}>
            {t('Open it as the hub printed it, with the part after #.')}
          </Nothing>
        ) : (
          <Screen query={check}>{(found) => <SetupForm token={token} found={found} />}</Screen>
        )}
      </Card>
    </Center>
  );
}

interface Found {
  tenant: string;
  roles: string[];
  first: boolean;
}

function SetupForm({ token, found }: { token: string; found: Found }) {
  const { tenant, roles, first } = found;
  const names = roles.join(', ');
  const parts = {
    tenant: <b>{tenant}</b>,
    roles: (
      <>{roles.length === 1 ? t('with the role {{names}}', { names }) : t('with the roles {{names}}', { names })}</>
    ),
  };
  const [username, setUsername] = useState(first ? 'admin' : '');
  const [password, setPassword] = useState('');
  const navigate = useNavigate();
  const setup = useMutation(loginMutations.createAccount(() => navigate({ to: '/overview' })));
  const submit = (e: FormEvent) => {
    e.preventDefault();
    setup.mutate({ token, username, password });
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        <Title order={1} size="h3">
          {t('Welcome to Capstan')}
        </Title>
        <Text size="sm">
          {first ? (
            <Rich
              text="This creates the first account of the tenant <tenant/>, <roles/>. It works once."
              parts={parts}
            />
          ) : (
            <Rich
              text="This link creates one more account of the tenant <tenant/>, <roles/>. It works once."
              parts={parts}
            />
          )}
        </Text>
        {setup.error && <Problem error={setup.error} />}
        <TextInput
          label={t('User name')}
          required
          value={username}
          onChange={(e) => setUsername(e.currentTarget.value)}
        />
        <PasswordInput
          label={t('Password')}
          description={t('At least 12 characters')}
          required
          minLength={12}
          value={password}
          onChange={(e) => setPassword(e.currentTarget.value)}
        />
        <Button type="submit" loading={setup.isPending}>
          {t('Create account')}
        </Button>
      </Stack>
    </form>
  );
}
