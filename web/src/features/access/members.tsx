import { Button, Checkbox, Group, Modal, PasswordInput, Stack, Switch, Table, Text, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Confirm, Once, SectionTitle } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { accessMutations, accessQueries, type Token, type User } from './api';

const roles = [
  { value: 'tenant-admin', label: t('Tenant admin: everything in this tenant') },
  { value: 'readonly', label: t('Reader: sees everything, changes nothing') },
] as const;

/** The accounts of the tenant. */
export function Members(props: {
  users: { data: { items: User[] } | undefined; error: unknown; isPending: boolean; refetch: () => unknown };
  text: string;
  find: (text: string) => void;
  member: string | undefined;
  open: (member: string | undefined) => void;
}) {
  const { users, text, find, member, open } = props;
  const denied = useDenied('accounts', 'create');
  const [adding, setAdding] = useState(false);
  const shown = (users.data?.items ?? []).filter((u) =>
    `${u.name} ${u.roles.join(' ')} ${u.provider ?? ''}`.toLowerCase().includes(text.toLowerCase()),
  );
  const chosen = users.data?.items.find((u) => u.name === member);
  return (
    <Stack>
      <div className="filters">
        <TextInput
          className="grow"
          aria-label={t('Search members')}
          placeholder={t('Name, role or identity provider')}
          leftSection={<IconSearch size={16} aria-hidden />}
          value={text}
          onChange={(e) => find(e.currentTarget.value)}
        />
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          {t('Add a member')}
        </ActionButton>
      </div>
      <Screen query={users}>
        {() =>
          shown.length === 0 ? (
            <Nothing title={t('No member matches the search.')} />
          ) : (
            <Table highlightOnHover aria-label={t('Members')}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Name')}</Table.Th>
                  <Table.Th>{t('Roles')}</Table.Th>
                  <Table.Th>{t('State')}</Table.Th>
                  <Table.Th className="second">{t('Signs in by')}</Table.Th>
                  <Table.Th className="second">{t('Since')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.map((u) => (
                  <Table.Tr key={u.name}>
                    <Table.Td>
                      <button type="button" className="name plain" onClick={() => open(u.name)}>
                        {u.name}
                      </button>
                    </Table.Td>
                    <Table.Td>{u.roles.join(', ') || t('by the policy alone')}</Table.Td>
                    <Table.Td>
                      <StateMark
                        look={
                          u.disabled
                            ? { label: t('Disabled'), tone: 'unknown', shape: 'barred' }
                            : { label: t('Active'), tone: 'ok', shape: 'done' }
                        }
                        weight="quiet"
                      />
                    </Table.Td>
                    <Table.Td className="second">{signsIn(u)}</Table.Td>
                    <Table.Td className="second" title={exact(u.createdAt)}>
                      {ago(u.createdAt, Date.now())}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )
        }
      </Screen>
      {adding && <AddMember close={() => setAdding(false)} />}
      {chosen && <Member key={chosen.name} user={chosen} close={() => open(undefined)} />}
    </Stack>
  );
}

/** What somebody signs in by, and who has made the account unless a person has. */
function signsIn({ provider, origin }: User): string {
  const how = provider || t('a password');
  return origin ? t('{{how}}, made by {{origin}}', { how, origin }) : how;
}

function RoleBoxes({ chosen, set }: { chosen: string[]; set: (roles: string[]) => void }) {
  return (
    <Checkbox.Group
      label={t('Roles')}
      description={t('Without one, only the policy gives rights')}
      value={chosen}
      onChange={(next) => set(next)}
    >
      <Stack gap={4} mt={4}>
        {roles.map((r) => (
          <Checkbox key={r.value} value={r.value} label={r.label} />
        ))}
      </Stack>
    </Checkbox.Group>
  );
}

const known = (all: string[]) => roles.map((r) => r.value).filter((r) => all.includes(r));

function AddMember({ close }: { close: () => void }) {
  const denied = useDenied('accounts', 'create');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [chosen, setChosen] = useState<string[]>([]);
  const create = useMutation(accessMutations.create());
  return (
    <Modal opened onClose={close} title={t('Add a member')}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          create.mutate(
            { name, roles: known(chosen), ...(password ? { password } : { capabilities: ['apiKey'] }) },
            { onSuccess: close },
          );
        }}
      >
        <Stack>
          {create.error && <Problem error={create.error} />}
          <TextInput
            label={t('Name')}
            required
            autoComplete="off"
            data-autofocus
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <PasswordInput
            label={t('First password')}
            description={t('At least 12 characters. Without one it is an account for API tokens alone.')}
            autoComplete="new-password"
            value={password}
            onChange={(e) => setPassword(e.currentTarget.value)}
          />
          <RoleBoxes chosen={chosen} set={setChosen} />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!name} loading={create.isPending}>
              {t('Add')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function Member({ user, close }: { user: User; close: () => void }) {
  const denied = useDenied('accounts', 'update');
  const noDelete = useDenied('accounts', 'delete');
  const [chosen, setChosen] = useState(user.roles);
  const [disabled, setDisabled] = useState(user.disabled ?? false);
  const [removing, setRemoving] = useState(false);
  const update = useMutation(accessMutations.update(user.name));
  const remove = useMutation(accessMutations.remove(user.name));
  if (removing) {
    return (
      <Confirm
        title={t('Delete {{name}}?', { name: user.name })}
        action={t('Delete the account')}
        typed={user.name}
        effects={[t('Its sessions and tokens stop working at once.'), t('What it did stays in the activity.')]}
        denied={noDelete}
        error={remove.error}
        pending={remove.isPending}
        run={() => remove.mutate(undefined, { onSuccess: close })}
        close={() => setRemoving(false)}
      />
    );
  }
  return (
    <Modal opened onClose={close} title={user.name} size="lg">
      <Stack>
        {update.error && <Problem error={update.error} />}
        <RoleBoxes chosen={chosen} set={setChosen} />
        <Switch
          label={t('May sign in and use its tokens')}
          checked={!disabled}
          onChange={(e) => setDisabled(!e.currentTarget.checked)}
        />
        <Group justify="space-between">
          <ActionButton why={noDelete} color="red" variant="outline" onClick={() => setRemoving(true)}>
            {t('Delete')}
          </ActionButton>
          <ActionButton
            why={denied}
            loading={update.isPending}
            onClick={() =>
              update.mutate(
                {
                  roles: [
                    ...known(chosen),
                    ...(user.roles.includes('platform-admin') ? (['platform-admin'] as const) : []),
                  ],
                  disabled,
                },
                { onSuccess: close },
              )
            }
          >
            {t('Save')}
          </ActionButton>
        </Group>
        <Tokens username={user.name} />
      </Stack>
    </Modal>
  );
}

/** Tokens with when they were used last and when they end. */
export function TokenTable({
  tokens,
  label,
  denied,
  revoke,
}: {
  tokens: Token[];
  label: string;
  denied: string;
  revoke: (id: string) => void;
}) {
  if (tokens.length === 0) return <Text c="dimmed">{t('None.')}</Text>;
  return (
    <Table aria-label={label}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Name')}</Table.Th>
          <Table.Th>{t('Begins with')}</Table.Th>
          <Table.Th>{t('Used')}</Table.Th>
          <Table.Th>{t('Ends')}</Table.Th>
          <Table.Th aria-label={t('Actions')} />
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {tokens.map((token) => (
          <Table.Tr key={token.id}>
            <Table.Td>{token.name}</Table.Td>
            <Table.Td>
              <code>{token.prefix}</code>
            </Table.Td>
            <Table.Td title={exact(token.usedAt)}>{ago(token.usedAt, Date.now())}</Table.Td>
            <Table.Td>{token.expiresAt ? exact(token.expiresAt) : t('never')}</Table.Td>
            <Table.Td>
              <ActionButton
                why={denied}
                size="compact-sm"
                variant="subtle"
                color="red"
                aria-label={t('Revoke {{name}}', { name: token.name })}
                onClick={() => revoke(token.id)}
              >
                {t('Revoke')}
              </ActionButton>
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Tokens({ username }: { username: string }) {
  const denied = useDenied('accounts', 'update');
  const tokens = useQuery(accessQueries.tokens(username));
  const [name, setName] = useState('');
  const create = useMutation(accessMutations.createToken(username));
  const revoke = useMutation(accessMutations.removeToken(username));
  return (
    <section aria-label={t('Tokens')}>
      <SectionTitle count={tokens.data?.items.length}>{t('Tokens')}</SectionTitle>
      {create.error && <Problem error={create.error} />}
      <Screen query={tokens}>
        {(d) => (
          <TokenTable
            tokens={d.items}
            label={t('Tokens of {{username}}', { username })}
            denied={denied}
            revoke={(id) => revoke.mutate(id)}
          />
        )}
      </Screen>
      <Group gap="xs" mt="xs" align="flex-end">
        <TextInput
          label={t('Name of a new token')}
          description={t('It ends after 90 days')}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
        />
        <ActionButton
          why={denied}
          variant="default"
          disabled={!name}
          loading={create.isPending}
          onClick={() => create.mutate({ name }, { onSuccess: () => setName('') })}
        >
          {t('Make a token')}
        </ActionButton>
      </Group>
      {create.data && (
        <Once
          what={t('Token {{name}} of {{username}}', { name: create.data.info.name, username })}
          secret={create.data.token}
          close={() => create.reset()}
        />
      )}
    </section>
  );
}
