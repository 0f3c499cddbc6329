import { Button, Divider, Stack } from '@mantine/core';
import type { components } from '../../api/schema.gen';

type Provider = components['schemas']['SignInProvider'];

/** One button for each identity provider that the browser goes to. */
export function ProviderButtons({ providers, tenant, to }: { providers: Provider[]; tenant: string; to: string }) {
  const redirects = providers.filter((p) => p.kind === 'redirect');
  if (redirects.length === 0) return null;
  return (
    <>
      <Stack gap="xs">
        {redirects.map((p) => (
          <Button key={p.id} component="a" variant="default" href={signInAddress(p.id, tenant, to)}>
            Sign in with {p.name}
          </Button>
        ))}
      </Stack>
      <Divider label="or with a password" labelPosition="center" />
    </>
  );
}

/** Where a sign-in by a provider begins. */
export function signInAddress(provider: string, tenant: string, to: string): string {
  const query = new URLSearchParams({ provider, return_url: to });
  if (tenant) query.set('tenant', tenant);
  return `/auth/login?${query}`;
}
