import { Button, Group, Modal, Stack, Table, Text, Textarea, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Confirm } from '../../ui/page';
import { Nothing, Problem, Screen } from '../../ui/states';
import { type Certificate, repositoryMutations, repositoryQueries } from './api';

const words = {
  ssh: {
    add: t('Add known hosts'),
    title: t('Known hosts'),
    about: t('The keys by which SSH servers are recognised. A key of your own takes the place of a built-in one.'),
    none: t('No SSH server is known.'),
  },
  https: {
    add: t('Add a certificate'),
    title: t('Certificates'),
    about: t('The authorities that Git servers over https must come from, if not those of the hub.'),
    none: t('No certificate is stored; those of the hub are used.'),
  },
} as const;

/** Host keys of SSH servers, or TLS certificates of Git servers. */
export function Certificates({ type }: { type: 'ssh' | 'https' }) {
  const denied = useDenied('certificates', 'create');
  const noDelete = useDenied('certificates', 'delete');
  const all = useQuery(repositoryQueries.certificates());
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Certificate>();
  const remove = useMutation(repositoryMutations.removeCertificate());
  const own = words[type];
  return (
    <Stack>
      <Group justify="space-between">
        <Text c="dimmed">{own.about}</Text>
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          {own.add}
        </ActionButton>
      </Group>
      <Screen
        query={all}
        empty={(d) => (d.items.some((c) => c.type === type) ? undefined : <Nothing title={own.none} />)}
      >
        {(d) => (
          <div className="wide">
            <Table aria-label={own.title}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Server')}</Table.Th>
                  <Table.Th>{t('Kind of key')}</Table.Th>
                  <Table.Th className="second">{t('Fingerprint')}</Table.Th>
                  <Table.Th className="second">{type === 'ssh' ? t('From') : t('Ends')}</Table.Th>
                  <Table.Th aria-label={t('Actions')} />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.items
                  .filter((c) => c.type === type)
                  .map((c) => (
                    <Table.Tr key={`${c.serverName} ${c.subType} ${c.fingerprint}`}>
                      <Table.Td>
                        {c.serverName}
                        {c.info && (
                          <Text size="xs" c="dimmed">
                            {c.info}
                          </Text>
                        )}
                      </Table.Td>
                      <Table.Td>{c.subType}</Table.Td>
                      <Table.Td className="second breakable">
                        <code>{c.fingerprint}</code>
                      </Table.Td>
                      <Table.Td className="second">
                        {type === 'https' ? exact(c.expiresAt) : c.builtIn ? t('this release') : exact(c.createdAt)}
                      </Table.Td>
                      <Table.Td>
                        {!c.builtIn && (
                          <ActionButton
                            why={noDelete}
                            size="compact-sm"
                            variant="subtle"
                            color="red"
                            aria-label={t('Forget {{serverName}} {{subType}}', {
                              serverName: c.serverName,
                              subType: c.subType,
                            })}
                            onClick={() => setRemoving(c)}
                          >
                            {t('Forget')}
                          </ActionButton>
                        )}
                      </Table.Td>
                    </Table.Tr>
                  ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Screen>
      {adding && <Add type={type} denied={denied} close={() => setAdding(false)} />}
      {removing && (
        <Confirm
          title={t('Forget {{serverName}}?', { serverName: removing.serverName })}
          action={t('Forget')}
          effects={[
            t('Repositories on this server cannot be fetched until it is trusted again, or a built-in key fits.'),
          ]}
          denied={noDelete}
          error={remove.error}
          pending={remove.isPending}
          run={() => remove.mutate(removing, { onSuccess: () => setRemoving(undefined) })}
          close={() => setRemoving(undefined)}
        />
      )}
    </Stack>
  );
}

function Add({ type, denied, close }: { type: 'ssh' | 'https'; denied: string; close: () => void }) {
  const [server, setServer] = useState('');
  const [data, setData] = useState('');
  const add = useMutation(repositoryMutations.addCertificates());
  return (
    <Modal opened onClose={close} title={words[type].add} size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          const input = type === 'ssh' ? { knownHosts: data } : { tls: [{ serverName: server, data }] };
          if (!denied) add.mutate(input, { onSuccess: close });
        }}
      >
        <Stack>
          {add.error && <Problem error={add.error} />}
          {type === 'https' && (
            <TextInput
              label={t('Server')}
              description={t('The host as in the URL, without a port')}
              required
              value={server}
              onChange={(e) => setServer(e.currentTarget.value)}
            />
          )}
          <Textarea
            label={type === 'ssh' ? t('Lines of known_hosts') : t('Certificates')}
            description={
              type === 'ssh'
                ? t('Such as ssh-keyscan prints; compare its fingerprints with those that the server publishes.')
                : t('One or more in PEM.')
            }
            required
            rows={8}
            spellCheck={false}
            value={data}
            onChange={(e) => setData(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('Cancel')}
            </Button>
            <ActionButton type="submit" why={denied} disabled={!data} loading={add.isPending}>
              {t('Add')}
            </ActionButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** The keys that signatures of commits are checked with. */
export function Keys() {
  const denied = useDenied('gpgkeys', 'create');
  const noDelete = useDenied('gpgkeys', 'delete');
  const keys = useQuery(repositoryQueries.keys());
  const [adding, setAdding] = useState(false);
  const [data, setData] = useState('');
  const [removing, setRemoving] = useState('');
  const add = useMutation(repositoryMutations.addKeys());
  const remove = useMutation(repositoryMutations.removeKey());
  return (
    <Stack>
      <Group justify="space-between">
        <Text c="dimmed">{t('Projects name the keys that their commits must be signed with.')}</Text>
        <ActionButton why={denied} onClick={() => setAdding(true)}>
          {t('Add keys')}
        </ActionButton>
      </Group>
      <Screen
        query={keys}
        empty={(d) => (d.items.length === 0 ? <Nothing title={t('No key is stored.')} /> : undefined)}
      >
        {(d) => (
          <Table aria-label={t('GnuPG keys')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('Key')}</Table.Th>
                <Table.Th>{t('Owner')}</Table.Th>
                <Table.Th className="second">{t('Kind')}</Table.Th>
                <Table.Th>{t('State')}</Table.Th>
                <Table.Th aria-label={t('Actions')} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((k) => (
                <Table.Tr key={k.keyID}>
                  <Table.Td title={k.fingerprint}>
                    <code>{k.keyID}</code>
                  </Table.Td>
                  <Table.Td className="breakable">{k.owner}</Table.Td>
                  <Table.Td className="second">{k.subType}</Table.Td>
                  <Table.Td>
                    <StateMark
                      look={
                        k.revoked
                          ? { label: t('Revoked'), tone: 'failed', shape: 'barred' }
                          : k.expiresAt && Date.parse(k.expiresAt) < Date.now()
                            ? { label: t('Expired'), tone: 'attention', shape: 'waiting' }
                            : { label: t('Valid'), tone: 'ok', shape: 'done' }
                      }
                      hint={k.expiresAt ? t('until {{time}}', { time: exact(k.expiresAt) }) : t('without an end')}
                      weight="quiet"
                    />
                  </Table.Td>
                  <Table.Td>
                    <ActionButton
                      why={noDelete}
                      size="compact-sm"
                      variant="subtle"
                      color="red"
                      aria-label={t('Delete the key {{keyID}}', { keyID: k.keyID })}
                      onClick={() => setRemoving(k.keyID)}
                    >
                      {t('Delete')}
                    </ActionButton>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Screen>
      <Modal opened={adding} onClose={() => setAdding(false)} title={t('Add keys')} size="lg">
        <Stack>
          {add.error && <Problem error={add.error} />}
          <Textarea
            label={t('Public keys')}
            description={t('What gpg --armor --export prints')}
            rows={10}
            spellCheck={false}
            value={data}
            onChange={(e) => setData(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <ActionButton
              why={denied}
              disabled={!data}
              loading={add.isPending}
              onClick={() =>
                add.mutate(data, {
                  onSuccess: () => {
                    setAdding(false);
                    setData('');
                  },
                })
              }
            >
              {t('Add')}
            </ActionButton>
          </Group>
        </Stack>
      </Modal>
      {removing && (
        <Confirm
          title={t('Delete the key {{removing}}?', { removing })}
          action={t('Delete')}
          effects={[t('Commits that are signed with it are no longer accepted where a project demands signatures.')]}
          denied={noDelete}
          error={remove.error}
          pending={remove.isPending}
          run={() => remove.mutate(removing, { onSuccess: () => setRemoving('') })}
          close={() => setRemoving('')}
        />
      )}
    </Stack>
  );
}
