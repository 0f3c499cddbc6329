import { ActionIcon, Button, Group, Menu, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { IconDots } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Confirm, Once, Page } from '../../ui/page';
import { QuotaTable } from '../../ui/quotas';
import type { ShapeName, Tone } from '../../ui/shapes';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type Tenant, tenantMutations, tenantQueries } from './api';

/** How a tenant is. */
function lookOf(t: Tenant): { label: string; tone: Tone; shape: ShapeName } {
  if (t.deletedAt) return { label: 'Being deleted', tone: 'failed', shape: 'leaving' };
  if (t.suspended) return { label: 'Suspended', tone: 'paused', shape: 'suspended' };
  return { label: 'In service', tone: 'ok', shape: 'done' };
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
  const chosen = tenants.data?.items.find((t) => t.name === search.tenant);
  const close = () => set({});
  return (
    <Page
      title="Platform"
      about="The tenants of this hub"
      actions={
        !denied && (
          <ActionButton why={noCreate} onClick={() => set({ ask: 'create' })}>
            New tenant
          </ActionButton>
        )
      }
    >
      {denied ? (
        <Nothing title="You may not see the tenants.">{denied}</Nothing>
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
      <Table highlightOnHover aria-label="Tenants">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Name</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th className="second">Since</Table.Th>
            <Table.Th aria-label="Actions" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {tenants.map((t) => (
            <Table.Tr key={t.id}>
              <Table.Td>
                <b>{t.name}</b>
                {t.displayName && <div className="note">{t.displayName}</div>}
              </Table.Td>
              <Table.Td>
                <StateMark look={lookOf(t)} weight="quiet" />
                <Text size="xs" c="dimmed">
                  {t.deletedAt ? `everything is removed ${exact(t.purgeAt)}` : t.suspendedReason}
                </Text>
              </Table.Td>
              <Table.Td className="second" title={exact(t.createdAt)}>
                {ago(t.createdAt, Date.now())}
              </Table.Td>
              <Table.Td>
                <Menu position="bottom-end">
                  <Menu.Target>
                    <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${t.name}`}>
                      <IconDots size={16} aria-hidden />
                    </ActionIcon>
                  </Menu.Target>
                  <Menu.Dropdown>
                    <Menu.Item onClick={() => ask('quotas', t.name)}>Quotas and usage</Menu.Item>
                    <Menu.Item onClick={() => link.mutate(t.name)}>New setup link</Menu.Item>
                    {t.suspended ? (
                      <Menu.Item onClick={() => resume.mutate(t.name)}>Resume</Menu.Item>
                    ) : (
                      <Menu.Item onClick={() => ask('suspend', t.name)}>Suspend</Menu.Item>
                    )}
                    {t.deletedAt ? (
                      <Menu.Item onClick={() => restore.mutate(t.name)}>Take the deletion back</Menu.Item>
                    ) : (
                      <Menu.Item color="red" onClick={() => ask('delete', t.name)}>
                        Delete
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
          what={`Setup link for an admin of ${link.data.tenant.name}`}
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
        what={`Setup link for the first admin of ${create.data.tenant.name}`}
        secret={create.data.setupLink}
        close={close}
      />
    );
  }
  return (
    <Modal opened onClose={close} title="New tenant">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!denied) create.mutate({ name, ...(displayName ? { displayName } : {}) });
        }}
      >
        <Stack>
          {create.error && <Problem error={create.error} />}
          <TextInput
            label="Name"
            description="Small letters, digits and dashes; it stays"
            required
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <TextInput
            label="Name for people"
            value={displayName}
            onChange={(e) => setDisplayName(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name} loading={create.isPending}>
              Create
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
      title={`Suspend ${tenant.name}?`}
      action="Suspend the tenant"
      typed={tenant.name}
      effects={[
        'Nobody of it signs in, and its tokens are refused.',
        'Nothing is rendered or synced, and its agents are not connected.',
        'What is deployed goes on running. It can be resumed at any time.',
      ]}
      denied={denied}
      error={suspend.error}
      pending={suspend.isPending}
      run={() => suspend.mutate(reason, { onSuccess: close })}
      close={close}
    >
      <TextInput label="Reason" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
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
      title={`Delete ${tenant.name}?`}
      action="Delete the tenant"
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
          It has {counts.applications} applications, {counts.clusters} clusters, {counts.projects} projects and{' '}
          {counts.users} members. Everything is removed {exact(plan.data?.purgeAt)}.
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
    <Modal opened onClose={close} title={`Quotas and usage of ${tenant.name}`} size="xl">
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
                  aria-label={`Change ${i.quota}`}
                  onClick={() => {
                    setEdited(i.quota);
                    setLimit(String(i.limit ?? ''));
                  }}
                >
                  Change
                </ActionButton>
              )}
            />
          )}
        </Screen>
        {edited && (
          <Group align="flex-end" gap="xs">
            <TextInput
              label={`Limit of ${edited}`}
              description="0 limits nothing; empty: the default of the hub"
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
              Save
            </Button>
          </Group>
        )}
      </Stack>
    </Modal>
  );
}
