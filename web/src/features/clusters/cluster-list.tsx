import {
  Alert,
  Badge,
  Button,
  Code,
  CopyButton,
  Group,
  Modal,
  Stack,
  Table,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Cluster, Enrolment } from '../../api/client';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { Nothing, Problem, Screen } from '../../ui/states';
import { clusterMutations, clusterQueries } from './api';

const colors = { Connected: 'teal', Disconnected: 'red', NeverConnected: 'gray' } as const;
const labels = { Connected: 'Connected', Disconnected: 'Disconnected', NeverConnected: 'Never connected' } as const;

const upgrades = {
  Pending: 'waits for the agent',
  Running: 'is under way',
  Succeeded: 'succeeded',
  RolledBack: 'was taken back',
  Failed: 'failed',
} as const;

/** The clusters, the state of their agents, and the way to add one. */
export function ClusterList() {
  const [open, setOpen] = useState(false);
  const clusters = useQuery(clusterQueries.list());
  const denied = useDenied('clusters', 'create');
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Clusters</Title>
        <ActionButton why={denied} onClick={() => setOpen(true)}>
          Enroll a cluster
        </ActionButton>
      </Group>
      <Screen
        query={clusters}
        empty={(d) =>
          d.items.length === 0 ? (
            <Nothing title="No cluster is enrolled yet.">
              Its agent dials out to the hub; the hub needs no credential for it.
            </Nothing>
          ) : undefined
        }
      >
        {(d) => (
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th>Agent</Table.Th>
                <Table.Th>Last seen</Table.Th>
                <Table.Th>Kubernetes</Table.Th>
                <Table.Th>Agent version</Table.Th>
                <Table.Th>Desired state</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {d.items.map((c) => (
                <Row key={c.id} cluster={c} />
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Screen>
      {open && <EnrollDialog denied={denied} close={() => setOpen(false)} />}
    </Stack>
  );
}

function Row({ cluster }: { cluster: Cluster }) {
  const level = cluster.seq === cluster.ackedSeq;
  return (
    <Table.Tr>
      <Table.Td>{cluster.name}</Table.Td>
      <Table.Td>
        <Badge variant="dot" color={colors[cluster.connection]}>
          {labels[cluster.connection]}
        </Badge>
        {cluster.refusal && (
          <Text size="xs" c="red" title={`${exact(cluster.refusal.at)} from ${cluster.refusal.address}`}>
            Refused {ago(cluster.refusal.at, Date.now())} ({cluster.refusal.stage}): {cluster.refusal.message}
          </Text>
        )}
      </Table.Td>
      <Table.Td title={exact(cluster.lastSeen)}>{ago(cluster.lastSeen, Date.now())}</Table.Td>
      <Table.Td>{cluster.kubeVersion}</Table.Td>
      <Table.Td>
        {cluster.agentVersion}
        {cluster.upgrade && (
          <Text
            size="xs"
            c={cluster.upgrade.phase === 'RolledBack' || cluster.upgrade.phase === 'Failed' ? 'red' : 'dimmed'}
            title={`${cluster.upgrade.image}, ordered by ${cluster.upgrade.by} ${exact(cluster.upgrade.orderedAt)}`}
          >
            Upgrade {upgrades[cluster.upgrade.phase]}
            {cluster.upgrade.message && `: ${cluster.upgrade.message}`}
          </Text>
        )}
      </Table.Td>
      <Table.Td title={cluster.receipt ? `equal on both sides ${exact(cluster.receipt.at)}` : ''}>
        {level ? 'delivered' : `${cluster.ackedSeq ?? 0} of ${cluster.seq ?? 0}`}
      </Table.Td>
    </Table.Tr>
  );
}

function EnrollDialog({ denied, close }: { denied: string; close: () => void }) {
  const [name, setName] = useState('');
  const enroll = useMutation(clusterMutations.enroll());
  return (
    <Modal opened onClose={close} title="Enroll a cluster" size="lg">
      {enroll.data ? (
        <Commands enrolment={enroll.data} />
      ) : (
        <Stack>
          {enroll.error && <Problem error={enroll.error} />}
          <TextInput
            label="Name"
            description="How destinations name it"
            required
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
          <Group justify="flex-end">
            <ActionButton why={denied} disabled={!name} loading={enroll.isPending} onClick={() => enroll.mutate(name)}>
              Make a join token
            </ActionButton>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

function Commands({ enrolment }: { enrolment: Enrolment }) {
  const clusters = useQuery(clusterQueries.list());
  const here = clusters.data?.items.find((c) => c.id === enrolment.cluster.id);
  return (
    <Stack>
      <Text size="sm">
        Run this where kubectl and helm reach the cluster. The token works once, until {exact(enrolment.expiresAt)}.
      </Text>
      <Command text={enrolment.helm} />
      <Text size="sm">Or start the agent yourself:</Text>
      <Command text={enrolment.command} />
      <Alert color={here?.connection === 'Connected' ? 'teal' : 'blue'} aria-live="polite">
        {here?.connection === 'Connected' ? 'The agent is connected.' : 'Waiting for the agent …'}
      </Alert>
    </Stack>
  );
}

function Command({ text }: { text: string }) {
  return (
    <Group align="flex-start" wrap="nowrap">
      <Code block style={{ flex: 1, whiteSpace: 'pre-wrap', wordBreak: 'break-all' }}>
        {text}
      </Code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Button variant="default" onClick={copy}>
            {copied ? 'Copied' : 'Copy'}
          </Button>
        )}
      </CopyButton>
    </Group>
  );
}
