import { Button, Card, Center, PasswordInput, Stack, Text, TextInput, Title } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useRouter, useSearch } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Problem } from '../../ui/states';
import { loginMutations } from './api';

/** Sign-in with a local account. */
export function SignInPage() {
  const [form, setForm] = useState({ tenant: '', username: '', password: '' });
  const { to } = useSearch({ from: '/login' });
  const router = useRouter();
  const signIn = useMutation(
    loginMutations.signIn(() => {
      // Only a path of this console: never another site.
      router.history.push(to?.startsWith('/') && !to.startsWith('//') ? to : '/applications');
    }),
  );
  const submit = (e: FormEvent) => {
    e.preventDefault();
    signIn.mutate(form);
  };
  const field = (name: keyof typeof form) => ({
    value: form[name],
    onChange: (e: { currentTarget: { value: string } }) => {
      const { value } = e.currentTarget;
      setForm((f) => ({ ...f, [name]: value }));
    },
  });
  return (
    <Center mih="100vh" p="md">
      <Card withBorder w={380} padding="xl" component="main">
        <form onSubmit={submit}>
          <Stack>
            <Title order={1} size="h3">
              Sign in to Capstan
            </Title>
            {signIn.error && <Problem error={signIn.error} />}
            <TextInput label="User name" autoComplete="username" required autoFocus {...field('username')} />
            <PasswordInput label="Password" autoComplete="current-password" required {...field('password')} />
            <TextInput label="Tenant" placeholder="default" autoComplete="organization" {...field('tenant')} />
            <Button type="submit" loading={signIn.isPending}>
              Sign in
            </Button>
            <Text size="xs" c="dimmed">
              First time here? Open the one-time setup link that the hub printed when it started.
            </Text>
          </Stack>
        </form>
      </Card>
    </Center>
  );
}
