import { ActionIcon, Button, Group, Menu, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { IconDots } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Confirm, Once, Page } from '../../ui/page';
import { QuotaTable } from '../../ui/quotas';
import type { ShapeName, Tone } from '../../ui/shapes';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type Tenant, tenantMutations, tenantQueries } from './api';

/** How a tenant is. */
function lookOf(tenant: Tenant): { label: string; tone: Tone; shape: ShapeName } {
  if (tenant.deletedAt) return { label: t('Being deleted'), tone: 'failed', shape: 'leaving' };
  if (tenant.suspended) return { label: t('Suspended'), tone: 'paused', shape: 'suspended' };
  return { label: t('In service'), tone: 'ok', shape: 'done' };
}

/** The tenants of the hub: made, suspended, limited and deleted by platform admins. */
export function PlatformPage() {
  const search = useSearch({ from: '/shell/platform' });
  const navigate = useNavigate({ from: '/platform' });
  const denied = useDenied('tenants', 'get');
  const noCreate = useDenied('tenants', 'create');
  const tenants = useQuery({ ...tenantQueries.list(), enabled: !denied });
  const set = (change: { ask?: string | undefined; tenant?: string | undefined }) =>
    void navigate({ search: Object.fromEntries(Object.entries(change).filter(([, v]) => v)), replace: true });
  const chosen = tenants.data?.items.find((tenant) => tenant.name === search.tenant);
  const close = () => set({});
  return (
    <Page
      title={t('Platform')}
      about={t('The tenants of this hub')}
      actions={
        !denied && (
          <ActionButton why={noCreate} onClick={() => set({ ask: 'create' })}>
            {t('New tenant')}
          </ActionButton>
        )
      }
    >
      {denied ? (
        <Nothing title={t('You may not see the tenants.')}>{denied}</Nothing>
      ) : (
        <Screen query={tenants}>{(d) => <Rows tenants={d.items} ask={(ask, tenant) => set({ ask, tenant })} />}</Screen>
      )}
      {search.ask === 'create' && <Create denied={noCreate} close={close} />}
      {chosen && search.ask === 'quotas' && <Quotas tenant={chosen} close={close} />}
      {chosen && search.ask === 'suspend' && <Suspend tenant={chosen} close={close} />}
      {chosen && search.ask === 'delete' && <Remove tenant={chosen} close={close} />}
    </Page>
  );
}

function Rows({ tenants, ask }: { tenants: Tenant[]; ask: (ask: string, tenant: string) => void }) {
  const resume = useMutation(tenantMutations.resume());
  const restore = useMutation(tenantMutations.restore());
  const link = useMutation(tenantMutations.setupLink());
  return (
    <>
      <Table highlightOnHover aria-label={t('Tenants')}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Name')}</Table.Th>
            <Table.Th>{t('State')}</Table.Th>
            <Table.Th className="second">{t('Since')}</Table.Th>
            <Table.Th aria-label={t('Actions')} />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {tenants.map((tenant) => (
            <Table.Tr key={tenant.id}>
              <Table.Td>
                <b>{tenant.name}</b>
                {tenant.displayName && <div className="note">{tenant.displayName}</div>}
              </Table.Td>
              <Table.Td>
                <StateMark look={lookOf(tenant)} weight="quiet" />
                <Text size="xs" c="dimmed">
                  {tenant.deletedAt
                    ? t('everything is removed {{time}}', { time: exact(tenant.purgeAt) })
                    : tenant.suspendedReason}
                </Text>
              </Table.Td>
              <Table.Td className="second" title={exact(tenant.createdAt)}>
                {ago(tenant.createdAt, Date.now())}
              </Table.Td>
              <Table.Td>
                <Menu position="bottom-end">
                  <Menu.Target>
                    <ActionIcon
                      variant="subtle"
                      color="gray"
                      aria-label={t('Actions for {{name}}', { name: tenant.name })}
                    >
                      <IconDots size={16} aria-hidden />
                    </ActionIcon>
                  </Menu.Target>
                  <Menu.Dropdown>
                    <Menu.Item onClick={() => ask('quotas', tenant.name)}>{t('Quotas and usage')}</Menu.Item>
                    <Menu.Item onClick={() => link.mutate(tenant.name)}>{t('New setup link')}</Menu.Item>
                    {tenant.suspended ? (
                      <Menu.Item onClick={() => resume.mutate(tenant.name)}>{t('Resume')}</Menu.Item>
                    ) : (
                      <Menu.Item onClick={() => ask('suspend', tenant.name)}>{t('Suspend')}</Menu.Item>
                    )}
                    {tenant.deletedAt ? (
                      <Menu.Item onClick={() => restore.mutate(tenant.name)}>{t('Take the deletion back')}</Menu.Item>
                    ) : (
                      <Menu.Item color="red" onClick={() => ask('delete', tenant.name)}>
                        {t('Delete')}
                      </Menu.Item>
                    )}
                  </Menu.Dropdown>
                </Menu>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {link.error && <Problem error={link.error} />}
      {link.data && (
        <Once
          what={t('Setup link for an admin of {{tenant}}', { tenant: link.data.tenant.name })}
          secret={link.data.setupLink}
          close={() => link.reset()}
        />
      )}
    </>
  );
}

function Create({ denied, close }: { denied: string; close: () => void }) {
  const [name, setName] = useState('');
  const [displayName, setDisplayName] = useState('');
  const create = useMutation(tenantMutations.create());
  if (create.data) {
    return (
      <Once
        what={t('Setup link for the first admin of {{tenant}}', { tenant: create.data.tenant.name })}
        secret={create.data.setupLink}
        close={close}
      />
    );
  }
  return (
    <Modal opened onClose={close} title={t('New tenant')}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!denied) create.mutate({ name, ...(displayName ? { displayName } : {}) });
        }}
      >
        <Stack>
          {create.error && <Problem error={create.error} />}
          <TextInput
            label={t('Name')}
            description={t('Small letters, digits and dashes; it stays')}
            required
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <TextInput
            label={t('Name for people')}
            value={displayName}
            onChange={(e) => setDisplayName(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name} loading={create.isPending}>
              {t('Create')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function Suspend({ tenant, close }: { tenant: Tenant; close: () => void }) {
  const denied = useDenied('tenants', 'suspend');
  const [reason, setReason] = useState('');
  const suspend = useMutation(tenantMutations.suspend(tenant.name));
  return (
    <Confirm
      title={t('Suspend {{name}}?', { name: tenant.name })}
      action={t('Suspend the tenant')}
      typed={tenant.name}
      effects={[
        t('Nobody of it signs in, and its tokens are refused.'),
        t('Nothing is rendered or synced, and its agents are not connected.'),
        t('What is deployed goes on running. It can be resumed at any time.'),
      ]}
      denied={denied}
      error={suspend.error}
      pending={suspend.isPending}
      run={() => suspend.mutate(reason, { onSuccess: close })}
      close={close}
    >
      <TextInput label={t('Reason')} value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
    </Confirm>
  );
}

function Remove({ tenant, close }: { tenant: Tenant; close: () => void }) {
  const denied = useDenied('tenants', 'delete');
  const plan = useQuery(tenantQueries.deletion(tenant.name));
  const remove = useMutation(tenantMutations.remove(tenant.name));
  const counts = plan.data?.counts;
  return (
    <Confirm
      title={t('Delete {{name}}?', { name: tenant.name })}
      action={t('Delete the tenant')}
      typed={tenant.name}
      effects={plan.data?.effects}
      denied={denied}
      error={remove.error ?? plan.error}
      pending={remove.isPending || plan.isPending}
      run={() => remove.mutate(undefined, { onSuccess: close })}
      close={close}
    >
      {counts && (
        <Text size="sm">
          {t(
            'It has {{applications}} applications, {{clusters}} clusters, {{projects}} projects and {{users}} members. Everything is removed {{time}}.',
            {
              applications: counts.applications,
              clusters: counts.clusters,
              projects: counts.projects,
              users: counts.users,
              time: exact(plan.data?.purgeAt),
            },
          )}
        </Text>
      )}
    </Confirm>
  );
}

function Quotas({ tenant, close }: { tenant: Tenant; close: () => void }) {
  const denied = useDenied('tenants', 'set-quota');
  const usage = useQuery(tenantQueries.usage(tenant.name));
  const [edited, setEdited] = useState<string>();
  const [limit, setLimit] = useState('');
  const change = useMutation(tenantMutations.quota(tenant.name));
  const done = () => setEdited(undefined);
  return (
    <Modal opened onClose={close} title={t('Quotas and usage of {{name}}', { name: tenant.name })} size="xl">
      <Stack>
        {change.error && <Problem error={change.error} />}
        <Screen query={usage}>
          {(d) => (
            <QuotaTable
              items={d.items}
              action={(i) => (
                <ActionButton
                  why={denied}
                  size="compact-sm"
                  variant="default"
                  aria-label={t('Change {{quota}}', { quota: i.quota })}
                  onClick={() => {
                    setEdited(i.quota);
                    setLimit(String(i.limit ?? ''));
                  }}
                >
                  {t('Change')}
                </ActionButton>
              )}
            />
          )}
        </Screen>
        {edited && (
          <Group align="flex-end" gap="xs">
            <TextInput
              label={t('Limit of {{edited}}', { edited })}
              description={t('0 limits nothing; empty: the default of the hub')}
              inputMode="numeric"
              value={limit}
              onChange={(e) => setLimit(e.currentTarget.value.replace(/\D/g, ''))}
            />
            <Button
              loading={change.isPending}
              onClick={() =>
                change.mutate({ quota: edited, limit: limit === '' ? undefined : Number(limit) }, { onSuccess: done })
              }
            >
              {t('Save')}
            </Button>
          </Group>
        )}
      </Stack>
    </Modal>
  );
}
