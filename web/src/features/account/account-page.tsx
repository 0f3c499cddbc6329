import { Badge, Button, Group, Modal, NativeSelect, Stack, Table, Text, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Me } from '../../api/client';
import { may, meQuery, useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { count, Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Nothing, Screen } from '../../ui/states';
import { accountMutations, accountQueries, type Session, type Token } from './api';
import { deviceName, tokenLook } from './model';
import { NewToken } from './new-token';
import './account.css';

/** Where somebody is signed in, with which tokens, and as what: oneself, or for admins any account. */
export function AccountPage() {
  const { user } = useSearch({ from: '/shell/account' });
  const me = useQuery(meQuery).data;
  if (!me) return null;
  const name = user ?? me.username;
  return (
    <div className="account">
      <Group justify="space-between">
        <Title order={2}>{name === me.username ? t('Your account') : t('Account {{name}}', { name })}</Title>
        {may(me, 'accounts', 'get') && <Members name={name} me={me.username} />}
      </Group>
      {name === me.username && <Identity me={me} />}
      <Sessions key={`sessions ${name}`} name={name} me={me} />
      <Tokens key={`tokens ${name}`} name={name} me={me} />
    </div>
  );
}

/** Chooses another account of the tenant. */
function Members({ name, me }: { name: string; me: string }) {
  const users = useQuery(accountQueries.users()).data ?? [];
  const navigate = useNavigate({ from: '/account' });
  const names = [...new Set([me, name, ...users.map((u) => u.name)])];
  return (
    <NativeSelect
      aria-label={t('Account')}
      value={name}
      data={names.map((n) => ({ value: n, label: n === me ? t('{{name}} (you)', { name: n }) : n }))}
      onChange={(e) => {
        const { value } = e.currentTarget;
        void navigate({ search: value === me ? {} : { user: value } });
      }}
    />
  );
}

/** Who one is here, and which groups of the identity provider count. */
function Identity({ me }: { me: Me }) {
  return (
    <section aria-labelledby="identity">
      <div className="head">
        <Title order={3} id="identity">
          {t('Claims and groups')}
        </Title>
      </div>
      <dl className="account-facts">
        <dt>{t('Name')}</dt>
        <dd>{me.username}</dd>
        <dt>{t('Tenant')}</dt>
        <dd>{me.tenant}</dd>
        <dt>{t('Signed in by')}</dt>
        <dd>{me.provider || t('a local account')}</dd>
        <dt>{t('Roles')}</dt>
        <dd>{me.roles.length > 0 ? me.roles.join(', ') : t('none of its own')}</dd>
        <dt>{t('Groups and claims')}</dt>
        <dd>
          {me.groups && me.groups.length > 0 ? (
            <Group gap={4}>
              {me.groups.map((g) => (
                <Badge key={g} variant="light" color="gray" tt="none">
                  {g}
                </Badge>
              ))}
            </Group>
          ) : (
            t('none that policies can name')
          )}
        </dd>
      </dl>
    </section>
  );
}

function Sessions({ name, me }: { name: string; me: Me }) {
  const own = name === me.username;
  const missing = useDenied('accounts', 'update');
  const denied = own ? '' : missing;
  const sessions = useQuery(accountQueries.sessions(name));
  const end = useMutation(accountMutations.endSession(name));
  const endAll = useMutation(accountMutations.endSessions(name, own));
  const [asked, setAsked] = useState(false);
  const others = sessions.data?.filter((s) => !s.current) ?? [];
  return (
    <section aria-labelledby="sessions">
      <div className="head">
        <Title order={3} id="sessions">
          {t('Sessions')}
        </Title>
        <ActionButton
          variant="default"
          size="xs"
          why={denied || (others.length === 0 ? t('There is no other session.') : '')}
          onClick={() => setAsked(true)}
        >
          {own ? t('End all others') : t('End all')}
        </ActionButton>
      </div>
      <Screen
        query={sessions}
        empty={(d) => (d.length === 0 ? <Nothing title={t('Nobody is signed in.')} /> : undefined)}
      >
        {(d) => (
          <Table.ScrollContainer minWidth={280} type="native" tabIndex={0}>
            <Table aria-labelledby="sessions">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Device')}</Table.Th>
                  <Table.Th className="second">{t('Address')}</Table.Th>
                  <Table.Th className="second">{t('Signed in')}</Table.Th>
                  <Table.Th>{t('Last used')}</Table.Th>
                  <Table.Th className="second">{t('Ends')}</Table.Th>
                  <Table.Th aria-label={t('Actions')} />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.map((s) => (
                  <SessionRow
                    key={s.id}
                    session={s}
                    denied={denied}
                    busy={end.isPending}
                    end={() => end.mutate(s.id)}
                  />
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </Screen>
      <Modal
        opened={asked}
        onClose={() => setAsked(false)}
        title={own ? t('End all other sessions') : t('End all sessions')}
      >
        <Stack>
          <Text size="sm">
            {count(
              others.length,
              'One session ends at the next request, with open streams. Tokens stay.',
              '{{n}} sessions end at the next request, with open streams. Tokens stay.',
            )}
          </Text>
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setAsked(false)}>
              {t('Cancel')}
            </Button>
            <Button
              color="red"
              loading={endAll.isPending}
              onClick={() => endAll.mutate(undefined, { onSettled: () => setAsked(false) })}
            >
              {t('End them')}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </section>
  );
}

function SessionRow(props: { session: Session; denied: string; busy: boolean; end: () => void }) {
  const { session: s, denied, busy, end } = props;
  const device = deviceName(s.client);
  return (
    <Table.Tr>
      <Table.Td className="cell-text" title={s.client}>
        {device} {s.current && <StateMark look={{ label: t('This one'), tone: 'ok', shape: 'done' }} weight="quiet" />}
      </Table.Td>
      <Table.Td className="second">
        <code>{s.address || '–'}</code>
      </Table.Td>
      <Table.Td className="second" title={exact(s.createdAt)}>
        {ago(s.createdAt, Date.now())}
      </Table.Td>
      <Table.Td title={exact(s.seenAt)}>{ago(s.seenAt, Date.now())}</Table.Td>
      <Table.Td className="second">{exact(s.expiresAt)}</Table.Td>
      <Table.Td>
        {!s.current && (
          <ActionButton
            variant="subtle"
            size="xs"
            why={denied}
            disabled={busy}
            aria-label={t('End the session of {{device}}', { device })}
            onClick={end}
          >
            {t('End')}
          </ActionButton>
        )}
      </Table.Td>
    </Table.Tr>
  );
}

function Tokens({ name, me }: { name: string; me: Me }) {
  const own = name === me.username;
  const missing = useDenied('accounts', 'update');
  const denied = own ? '' : missing;
  const tokens = useQuery(accountQueries.tokens(name));
  const revoke = useMutation(accountMutations.revokeToken(name));
  const [open, setOpen] = useState(false);
  const [leaving, setLeaving] = useState<Token>();
  return (
    <section aria-labelledby="tokens">
      <div className="head">
        <Title order={3} id="tokens">
          {t('API tokens')}
        </Title>
        <ActionButton
          size="xs"
          why={denied || (me.via === 'session' ? '' : t('A token cannot make another one.'))}
          onClick={() => setOpen(true)}
        >
          {t('New token')}
        </ActionButton>
      </div>
      <Text size="sm" c="dimmed" mb="xs">
        {own
          ? t('A token acts as you, with all rights of the account.')
          : t('A token acts as {{name}}, with all rights of the account.', { name })}
      </Text>
      <Screen
        query={tokens}
        empty={(d) =>
          d.length === 0 ? (
            <Nothing title={t('There is no token.')}>{t('Programs sign in with one.')}</Nothing>
          ) : undefined
        }
      >
        {(d) => (
          <Table.ScrollContainer minWidth={640} type="native" tabIndex={0}>
            <Table aria-labelledby="tokens">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Name')}</Table.Th>
                  <Table.Th>{t('Begins with')}</Table.Th>
                  <Table.Th>{t('State')}</Table.Th>
                  <Table.Th>{t('Made')}</Table.Th>
                  <Table.Th>{t('Last used')}</Table.Th>
                  <Table.Th>{t('Expires')}</Table.Th>
                  <Table.Th aria-label={t('Actions')} />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.map((token) => (
                  <Table.Tr key={token.id}>
                    <Table.Td className="cell-text">{token.name}</Table.Td>
                    <Table.Td>
                      <code>{token.prefix}…</code>
                    </Table.Td>
                    <Table.Td>
                      <StateMark look={tokenLook(token, Date.now())} weight="quiet" />
                    </Table.Td>
                    <Table.Td title={exact(token.createdAt)}>{ago(token.createdAt, Date.now())}</Table.Td>
                    <Table.Td title={exact(token.usedAt)}>{ago(token.usedAt, Date.now())}</Table.Td>
                    <Table.Td>{token.expiresAt ? exact(token.expiresAt) : t('never')}</Table.Td>
                    <Table.Td>
                      <ActionButton
                        variant="subtle"
                        size="xs"
                        color="red"
                        why={denied}
                        aria-label={t('Revoke {{name}}', { name: token.name })}
                        onClick={() => setLeaving(token)}
                      >
                        {t('Revoke')}
                      </ActionButton>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </Screen>
      {open && <NewToken username={name} close={() => setOpen(false)} />}
      <Modal opened={leaving !== undefined} onClose={() => setLeaving(undefined)} title={t('Revoke a token')}>
        <Stack>
          <Text size="sm">
            <Rich
              text="Programs that use <b/> are refused at their next request. This cannot be undone."
              parts={{ b: <b>{leaving?.name}</b> }}
            />
          </Text>
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setLeaving(undefined)}>
              {t('Cancel')}
            </Button>
            <Button
              color="red"
              loading={revoke.isPending}
              onClick={() => leaving && revoke.mutate(leaving.id, { onSettled: () => setLeaving(undefined) })}
            >
              {t('Revoke it')}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </section>
  );
}
