import { Alert, Button, Card, Center, NativeSelect, PasswordInput, Stack, Text, TextInput, Title } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useRouter, useSearch } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { worthRetrying } from '../../api/errors';
import { under } from '../../api/root';
import { t } from '../../texts';
import { LanguageChoice } from '../../ui/language';
import { Brand } from '../../ui/shapes';
import { Problem } from '../../ui/states';
import { loginMutations, loginQueries } from './api';
import { signInProblem } from './problems';
import { ProviderButtons } from './providers';

/** Only a path of this console: never another site. */
const ownPath = (to: string | undefined): `/${string}` => (isPath(to) ? to : '/overview');
const isPath = (to: string | undefined): to is `/${string}` => to !== undefined && /^\/(?![/\\])/.test(to);

/** Sign-in with an identity provider of the tenant, or with a local account. */
export function SignInPage() {
  const { to, tenant = '', problem } = useSearch({ from: '/login' });
  const [form, setForm] = useState({ tenant, username: '', password: '', provider: '' });
  const [settled] = useDebouncedValue(form.tenant, 300);
  const asked = useQuery(loginQueries.providers(settled));
  const offered = asked.data;
  const providers = offered?.items ?? [];
  const checks = providers.filter((p) => p.kind === 'password');
  const router = useRouter();
  const signIn = useMutation(loginMutations.signIn(() => router.history.push(under(ownPath(to)))));
  const submit = (e: FormEvent) => {
    e.preventDefault();
    signIn.mutate({ ...form, provider: checks.some((p) => p.id === form.provider) ? form.provider : '' });
  };
  const field = (name: keyof typeof form) => ({
    value: form[name],
    onChange: (e: { currentTarget: { value: string } }) => {
      const { value } = e.currentTarget;
      setForm((f) => ({ ...f, [name]: value }));
    },
  });
  const said = problem === undefined ? undefined : signInProblem(problem);
  return (
    <Center mih="100vh" p="md">
      <Card withBorder w={380} maw="100%" padding="xl" component="main">
        <Brand />
        <form onSubmit={submit}>
          <Stack>
            <Title order={1} size="h3">
              {t('Sign in to Capstan')}
            </Title>
            {said && !signIn.error && (
              <Alert color="red" title={said.title} role="alert">
                {said.fix}
              </Alert>
            )}
            <ProviderButtons providers={providers} text={offered?.buttonText} tenant={settled} to={ownPath(to)} />
            {worthRetrying(asked.error) && asked.error && !signIn.error && (
              <Problem error={asked.error} retry={() => void asked.refetch()} />
            )}
            {signIn.error && <Problem error={signIn.error} />}
            {checks.length > 0 && (
              <NativeSelect
                label={t('Account')}
                data={[
                  { value: '', label: t('Local account') },
                  ...checks.map((p) => ({ value: p.id, label: p.name })),
                ]}
                {...field('provider')}
              />
            )}
            <TextInput label={t('User name')} autoComplete="username" required autoFocus {...field('username')} />
            <PasswordInput label={t('Password')} autoComplete="current-password" required {...field('password')} />
            <TextInput label={t('Tenant')} placeholder="default" autoComplete="organization" {...field('tenant')} />
            <Button type="submit" loading={signIn.isPending}>
              {t('Sign in')}
            </Button>
            <Text size="xs" c="dimmed">
              {t('First time here? Open the one-time setup link that the hub printed when it started.')}
            </Text>
          </Stack>
        </form>
        <LanguageChoice />
      </Card>
    </Center>
  );
}
