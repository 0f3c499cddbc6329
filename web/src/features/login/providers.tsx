import { Button, Divider, Stack } from '@mantine/core';
import { under } from '../../api/root';
import type { components } from '../../api/schema.gen';
import { t } from '../../texts';

type Provider = components['schemas']['SignInProvider'];

interface Props {
  providers: Provider[];
  /** What the organisation writes on the button of the first one. */
  text: string | undefined;
  tenant: string;
  to: string;
}

/** One button for each identity provider that the browser goes to. */
export function ProviderButtons({ providers, text, tenant, to }: Props) {
  const redirects = providers.filter((p) => p.kind === 'redirect');
  if (redirects.length === 0) return null;
  return (
    <>
      <Stack gap="xs">
        {redirects.map((p, i) => (
          <Button key={p.id} component="a" variant="default" href={signInAddress(p.id, tenant, to)}>
            {(i === 0 && text) || t('Sign in with {{name}}', { name: p.name })}
          </Button>
        ))}
      </Stack>
      <Divider label={t('or with a password')} labelPosition="center" />
    </>
  );
}

/** Where a sign-in by a provider begins. */
export function signInAddress(provider: string, tenant: string, to: string): string {
  const query = new URLSearchParams({ provider, return_url: to });
  if (tenant) query.set('tenant', tenant);
  return under(`/auth/login?${query}`);
}
