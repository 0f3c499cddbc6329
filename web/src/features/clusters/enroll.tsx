import { Alert, Button, CopyButton, Group, Modal, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import type { Cluster, Enrolment } from '../../api/client';
import { sentence } from '../../api/errors';
import { exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Command, Labels } from '../../ui/page';
import type { ShapeName, Tone } from '../../ui/shapes';
import { Problem } from '../../ui/states';
import { clusterMutations, clusterQueries } from './api';
import './clusters.css';
import { t } from '../../texts';
import {
  commandOf,
  doctorOf,
  type Form,
  fixOf,
  formLabels,
  forms,
  type Mode,
  modes,
  readLabels,
  type Step,
  steps,
} from './model';

/** What a person chose about a cluster that is to be enrolled. */
interface Choice {
  name: string;
  labels: string;
  mode: Mode;
  namespaces: string;
}

/** Enrolls a cluster: a name, then one command, then steps that say how far its agent has come. */
export function EnrollDialog({ denied, again, close }: { denied: string; again?: string; close: () => void }) {
  const [choice, setChoice] = useState<Choice>({ name: again ?? '', labels: '', mode: 'cluster', namespaces: '' });
  const enroll = useMutation(clusterMutations.enroll());
  const { labels, error } = readLabels(choice.labels);
  const namespaces = choice.namespaces.split(/[\s,]+/).filter(Boolean);
  const order = () =>
    enroll.mutate({
      name: choice.name,
      ...(Object.keys(labels).length > 0 ? { labels } : {}),
      ...(choice.mode === 'namespaced' ? { scope: { namespaces } } : {}),
    });
  return (
    <Modal
      opened
      onClose={close}
      title={again ? t('New join token for {{again}}', { again }) : t('Enrol a cluster')}
      size={enroll.data ? 900 : 'lg'}
    >
      {enroll.data ? (
        <Connect
          key={enroll.data.expiresAt}
          enrolment={enroll.data}
          choice={choice}
          namespaces={namespaces}
          renew={order}
          renewing={enroll.isPending}
          close={close}
        />
      ) : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (!denied && choice.name && !error) order();
          }}
        >
          <Stack>
            {enroll.error && <Problem error={enroll.error} />}
            <TextInput
              label={t('Name')}
              description={t('How destinations name it: small letters, digits and dashes, such as prod-eu-1')}
              required
              data-autofocus
              readOnly={again !== undefined}
              value={choice.name}
              onChange={(e) => setChoice({ ...choice, name: e.currentTarget.value })}
            />
            <TextInput
              label={t('Labels')}
              description={t('For generators and filters, such as env=prod, region=eu')}
              value={choice.labels}
              error={error}
              onChange={(e) => setChoice({ ...choice, labels: e.currentTarget.value })}
            />
            <Rights choice={choice} set={setChoice} />
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                {t('Cancel')}
              </Button>
              <ActionButton
                type="submit"
                why={denied}
                disabled={!choice.name || error !== '' || (choice.mode === 'namespaced' && namespaces.length === 0)}
                loading={enroll.isPending}
              >
                {t('Make a join token')}
              </ActionButton>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}

function Rights({ choice, set }: { choice: Choice; set: (choice: Choice) => void }) {
  const mode = modes.find((m) => m.value === choice.mode);
  return (
    <div>
      <Text size="xs" fw={500} mb={4}>
        {t('Rights of the agent in the cluster')}
      </Text>
      <SegmentedControl
        aria-label={t('Rights of the agent in the cluster')}
        value={choice.mode}
        data={modes.map(({ value, label }) => ({ value, label }))}
        onChange={(value) => set({ ...choice, mode: modes.find((m) => m.value === value)?.value ?? 'cluster' })}
      />
      <Text size="xs" c="dimmed" mt={4}>
        {mode?.about}
      </Text>
      {choice.mode === 'namespaced' && (
        <TextInput
          mt="xs"
          label={t('Namespaces')}
          description={t('They must exist, such as shop, payments')}
          required
          value={choice.namespaces}
          onChange={(e) => set({ ...choice, namespaces: e.currentTarget.value })}
        />
      )}
    </div>
  );
}

function Connect(props: {
  enrolment: Enrolment;
  choice: Choice;
  namespaces: string[];
  renew: () => void;
  renewing: boolean;
  close: () => void;
}) {
  const { enrolment, choice, namespaces, renew, renewing, close } = props;
  const [form, setForm] = useState<Form>('helm');
  const made = useRef(new Date().toISOString());
  const here = useQuery(clusterQueries.waiting(enrolment.cluster.name)).data;
  const connected = here?.connection === 'Connected';
  return (
    <Stack>
      <div className="enroll">
        <Stack gap="sm">
          <Group gap="xs">
            <b>{enrolment.cluster.name}</b>
            <Labels labels={enrolment.cluster.labels} />
            <Text size="sm" c="dimmed">
              {modes.find((m) => m.value === choice.mode)?.label}
              {namespaces.length > 0 && `: ${namespaces.join(', ')}`}
            </Text>
          </Group>
          <Group justify="space-between">
            <Text size="sm">
              {form === 'binary'
                ? t('Run this where a kubeconfig of the cluster is')
                : t('Run this where kubectl and helm reach the cluster')}
            </Text>
            <SegmentedControl
              aria-label={t('Form of the command')}
              size="xs"
              value={form}
              data={forms.map((value) => ({ value, label: formLabels[value] }))}
              onChange={(value) => setForm(forms.find((f) => f === value) ?? 'helm')}
            />
          </Group>
          <Command text={commandOf(enrolment, form, choice.mode, namespaces)} />
          <Text size="sm" c="dimmed">
            {t('The token works once, until {{time}}.', { time: exact(enrolment.expiresAt) })}{' '}
            <Button variant="subtle" size="compact-sm" loading={renewing} onClick={renew}>
              {t('New token')}
            </Button>
          </Text>
          {!connected && (
            <Text size="sm" c="dimmed">
              {t(
                'If the agent does not arrive, run the check at the same place. It says what is wrong with DNS, proxy, TLS, clock or rights, and changes nothing.',
              )}{' '}
              <CopyButton value={doctorOf(enrolment, form)}>
                {({ copied, copy }) => (
                  <Button variant="subtle" size="compact-sm" onClick={copy}>
                    {copied ? t('Copied the check') : t('Copy the check')}
                  </Button>
                )}
              </CopyButton>
            </Text>
          )}
        </Stack>
        <Progress cluster={here} made={made.current} />
      </div>
      <Group justify="space-between">
        <Text size="sm" c="dimmed">
          {t('You can close this; the cluster stays in the list.')}
        </Text>
        <Group gap="xs">
          <Button variant="default" onClick={close}>
            {t('Close')}
          </Button>
          {connected && (
            <Button renderRoot={(p) => <Link to="/clusters/$name" params={{ name: enrolment.cluster.name }} {...p} />}>
              {t('Open cluster')}
            </Button>
          )}
        </Group>
      </Group>
    </Stack>
  );
}

const stepLooks: Record<Step['state'], { label: string; tone: Tone; shape: ShapeName }> = {
  done: { label: t('Done'), tone: 'ok', shape: 'done' },
  running: { label: t('Waiting'), tone: 'working', shape: 'running' },
  failed: { label: t('Failed'), tone: 'failed', shape: 'failed' },
  open: { label: t('Not yet'), tone: 'unknown', shape: 'absent' },
};

/** How far the agent has come, as the hub sees it. */
function Progress({ cluster, made }: { cluster: Cluster | undefined; made: string }) {
  const [seen, setSeen] = useState<string>();
  const connected = cluster?.connection === 'Connected';
  useEffect(() => {
    if (connected) setSeen((was) => was ?? new Date().toISOString());
  }, [connected]);
  const all = steps(cluster, made, seen);
  const refusal = connected ? undefined : cluster?.refusal;
  return (
    <div>
      <Text size="sm" fw={600} mb={4} aria-live="polite">
        {connected
          ? t('The agent is connected.')
          : refusal
            ? t('The hub refused an agent.')
            : t('Waiting for the agent …')}
      </Text>
      <ol className="enroll-steps" aria-label={t('Steps of the enrolment')}>
        {all.map((s) => (
          <li key={s.key} data-state={s.state} data-step={s.key}>
            <span className="state" data-tone={stepLooks[s.state].tone}>
              <StateMark look={{ ...stepLooks[s.state], label: '' }} weight="quiet" />
            </span>
            <span>
              {s.label} <span className="visually-hidden">({stepLooks[s.state].label})</span>
            </span>
            {s.note && <span className="note">{s.state === 'failed' ? sentence(s.note) : s.note}</span>}
          </li>
        ))}
      </ol>
      {refusal && (
        <Alert
          color="red"
          mt="xs"
          role="alert"
          title={t('Refused at {{time}} from {{address}}', { time: exact(refusal.at), address: refusal.address })}
        >
          {sentence(fixOf(refusal.stage) || refusal.message)}
        </Alert>
      )}
    </div>
  );
}
