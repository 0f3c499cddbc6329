import { Button, Group, Modal, Radio, Stack, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Cluster } from '../../api/client';
import { useDenied } from '../../api/session';
import { count, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { Confirm } from '../../ui/page';
import { PauseDialog } from '../../ui/pause';
import { Problem } from '../../ui/states';
import { clusterMutations, clusterQueries } from './api';
import { readLabels } from './model';

/** What the page of a cluster can ask about; the address has it. */
export type Ask = 'edit' | 'pause' | 'upgrade' | 'revoke' | 'remove' | 'keep' | 'accept-hub';

/** The dialog of what was asked. */
export function Asked({
  cluster,
  ask,
  close,
  gone,
}: {
  cluster: Cluster;
  ask: string;
  close: () => void;
  gone: () => void;
}) {
  switch (ask) {
    case 'edit':
      return <Edit cluster={cluster} close={close} />;
    case 'pause':
      return <PauseDialog cluster={cluster.name} close={close} />;
    case 'upgrade':
      return <Upgrade cluster={cluster} close={close} />;
    case 'revoke':
      return <Revoke cluster={cluster} close={close} />;
    case 'remove':
      return <Remove cluster={cluster} close={close} gone={gone} />;
    case 'keep':
      return <Keep cluster={cluster} close={close} />;
    case 'accept-hub':
      return <AcceptHub cluster={cluster} close={close} />;
    default:
      return null;
  }
}

interface Props {
  cluster: Cluster;
  close: () => void;
}

function Revoke({ cluster, close }: Props) {
  const denied = useDenied('clusters', 'delete');
  const revoke = useMutation(clusterMutations.revoke(cluster.name));
  return (
    <Confirm
      title={t('Cut off the agent of {{name}}?', { name: cluster.name })}
      action={t('Cut the agent off')}
      typed={cluster.name}
      effects={[
        t('Its certificates and open join tokens stop working within five seconds.'),
        t('What is deployed goes on running; nothing in the cluster is changed.'),
        t('Until a new agent joins with a new token, nothing is synced, and every state here grows old.'),
      ]}
      denied={denied}
      error={revoke.error}
      pending={revoke.isPending}
      run={() => revoke.mutate(undefined, { onSuccess: close })}
      close={close}
    />
  );
}

function Remove({ cluster, close, gone }: Props & { gone: () => void }) {
  const denied = useDenied('clusters', 'delete');
  const plan = useQuery({ ...clusterQueries.deletion(cluster.name), enabled: !denied });
  const remove = useMutation(clusterMutations.remove(cluster.name));
  return (
    <Confirm
      title={t('Remove {{name}}?', { name: cluster.name })}
      action={t('Remove the cluster')}
      typed={cluster.name}
      effects={plan.data?.effects}
      denied={denied}
      error={remove.error ?? plan.error}
      pending={remove.isPending || (plan.isPending && !denied)}
      run={() => remove.mutate(undefined, { onSuccess: gone })}
      close={close}
    >
      {plan.data && plan.data.applications > 0 && (
        <Text size="sm">
          {count(plan.data.applications, '{{n}} application uses it.', '{{n}} applications use it.')}
        </Text>
      )}
    </Confirm>
  );
}

function AcceptHub({ cluster, close }: Props) {
  const denied = useDenied('clusters', 'override');
  const accept = useMutation(clusterMutations.acceptHub(cluster.name));
  return (
    <Confirm
      title={t("Accept the hub's state for {{name}}?", { name: cluster.name })}
      action={t('Accept the state of the hub')}
      effects={[
        t('The agent takes over what the hub has, although it has seen newer rows.'),
        t('That deletes nothing. What was decided in the lost rows has to be decided again.'),
      ]}
      denied={denied}
      error={accept.error}
      pending={accept.isPending}
      danger={false}
      run={() => accept.mutate(undefined, { onSuccess: close })}
      close={close}
    />
  );
}

function Keep({ cluster, close }: Props) {
  const denied = useDenied('clusters', 'override');
  const keep = useMutation(clusterMutations.keep(cluster.name));
  const [chosen, setChosen] = useState('');
  const q = cluster.quarantine;
  return (
    <Confirm
      title={t('Which Kubernetes cluster is {{name}}?', { name: cluster.name })}
      action={t('Keep this one')}
      effects={[t('The agent of the other one is refused from now on, and needs an enrolment of its own.')]}
      denied={chosen ? denied : denied || t('Choose one of them first.')}
      error={keep.error}
      pending={keep.isPending}
      danger={false}
      run={() => keep.mutate(chosen, { onSuccess: close })}
      close={close}
    >
      {q && (
        <Radio.Group label={t('The one that keeps the identity')} value={chosen} onChange={setChosen}>
          <Stack gap="xs" mt="xs">
            <Radio value={q.known} label={t('The one that enrolled: kube-system {{known}}', { known: q.known })} />
            <Radio
              value={q.other}
              label={t('The later one, from {{address}}: kube-system {{other}}', {
                address: q.address,
                other: q.other,
              })}
            />
          </Stack>
        </Radio.Group>
      )}
    </Confirm>
  );
}

function Upgrade({ cluster, close }: Props) {
  const denied = useDenied('clusters', 'override');
  const [image, setImage] = useState('');
  const upgrade = useMutation(clusterMutations.upgrade(cluster.name));
  return (
    <Modal opened onClose={close} title={t('Upgrade the agent of {{name}}', { name: cluster.name })}>
      <Stack>
        {upgrade.error && <Problem error={upgrade.error} />}
        <Text size="sm">
          {cluster.agentVersion === undefined
            ? t(
                'It runs an unknown version. If the new one has not connected after five minutes, the agent goes back by itself.',
              )
            : t(
                'It runs {{version}}. If the new one has not connected after five minutes, the agent goes back by itself.',
                { version: cluster.agentVersion },
              )}
        </Text>
        <TextInput
          label={t('Image')}
          description={t('With a tag or a digest')}
          placeholder="registry.example.com/capstan-agent:v1.2.3"
          required
          value={image}
          onChange={(e) => setImage(e.currentTarget.value)}
        />
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t('Cancel')}
          </Button>
          <ActionButton
            why={denied}
            disabled={!image}
            loading={upgrade.isPending}
            onClick={() => upgrade.mutate(image, { onSuccess: close })}
          >
            {t('Upgrade')}
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}

function Edit({ cluster, close }: Props) {
  const denied = useDenied('clusters', 'update');
  const [labels, setLabels] = useState(
    Object.entries(cluster.labels ?? {})
      .map(([k, v]) => `${k}=${v}`)
      .join(', '),
  );
  const [server, setServer] = useState(cluster.server ?? '');
  const update = useMutation(clusterMutations.update(cluster));
  const read = readLabels(labels);
  return (
    <Modal opened onClose={close} title={t('Edit {{name}}', { name: cluster.name })}>
      <Stack>
        {update.error && <Problem error={update.error} />}
        <TextInput
          label={t('Labels')}
          description={t('For generators and filters, such as env=prod, region=eu')}
          value={labels}
          error={read.error}
          onChange={(e) => setLabels(e.currentTarget.value)}
        />
        <TextInput
          label={t('Address')}
          description={t('A URL that destinations may name it by. The hub never dials it.')}
          value={server}
          onChange={(e) => setServer(e.currentTarget.value)}
        />
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t('Cancel')}
          </Button>
          <ActionButton
            why={denied}
            disabled={read.error !== ''}
            loading={update.isPending}
            onClick={() =>
              update.mutate(
                { labels: read.labels, annotations: cluster.annotations ?? {}, server },
                { onSuccess: close },
              )
            }
          >
            {t('Save')}
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
