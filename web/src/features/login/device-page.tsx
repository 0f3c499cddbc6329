import { Alert, Button, Card, Center, Checkbox, Group, Stack, Text, TextInput, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { type FormEvent, useEffect, useState } from 'react';
import { meQuery } from '../../api/session';
import { ago, exact } from '../../format/format';
import { Rich, t } from '../../texts';
import { StateMark } from '../../ui/badges';
import { Brand } from '../../ui/shapes';
import { Problem } from '../../ui/states';
import { type DeviceLogin, deviceMutations } from './api';
import './device.css';

/** Signs a device in by the code that it shows (RFC 8628). */
export function DevicePage() {
  const { user_code: brought = '' } = useSearch({ from: '/device' });
  const me = useQuery(meQuery).data;
  const find = useMutation(deviceMutations.find());
  const decide = useMutation(deviceMutations.decide());
  // A code in the address may come from anybody, so it is compared before anything else.
  const [typed, setTyped] = useState(false);
  useEffect(() => {
    document.title = `${t('Sign a device in')} · Capstan`;
  }, []);
  useEffect(() => {
    if (brought) find.mutate(brought);
  }, [brought]);
  const device = find.data;
  return (
    <Center mih="100vh" p="md">
      <Card withBorder w={440} maw="100%" padding="xl" component="main">
        <Brand />
        <Stack>
          <Title order={1} size="h3">
            {t('Sign a device in')}
          </Title>
          {me && (
            <Text size="sm">
              <Rich
                text="You are signed in as <user/> of <tenant/>."
                parts={{ user: <b>{me.username}</b>, tenant: <b>{me.tenant}</b> }}
              />
            </Text>
          )}
          {decide.isSuccess && device ? (
            <Decided approved={decide.variables.approve} />
          ) : device ? (
            <Decide
              key={device.userCode}
              device={device}
              compare={!typed}
              problem={decide.error}
              busy={decide.isPending}
              decide={(approve) => decide.mutate({ userCode: device.userCode, approve })}
              other={() => find.reset()}
            />
          ) : (
            <Typed
              problem={find.error}
              busy={find.isPending}
              find={(code) => {
                setTyped(true);
                find.mutate(code);
              }}
            />
          )}
        </Stack>
      </Card>
    </Center>
  );
}

function Typed({ problem, busy, find }: { problem: unknown; busy: boolean; find: (code: string) => void }) {
  const [code, setCode] = useState('');
  const submit = (e: FormEvent) => {
    e.preventDefault();
    find(code);
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        {problem !== null && <Problem error={problem} />}
        <TextInput
          label={t('Code')}
          description={t('The eight letters that your terminal shows')}
          placeholder="WDJB-MJHT"
          required
          autoFocus
          autoComplete="off"
          spellCheck={false}
          maxLength={40}
          classNames={{ input: 'device-input' }}
          value={code}
          onChange={(e) => setCode(e.currentTarget.value.toUpperCase())}
        />
        <Button type="submit" loading={busy}>
          {t('Continue')}
        </Button>
      </Stack>
    </form>
  );
}

interface DecideProps {
  device: DeviceLogin;
  /** The person has not typed the code, and so has to compare it. */
  compare: boolean;
  problem: unknown;
  busy: boolean;
  decide: (approve: boolean) => void;
  other: () => void;
}

function Decide({ device, compare, problem, busy, decide, other }: DecideProps) {
  const [same, setSame] = useState(false);
  const { user_code, tenant } = useSearch({ from: '/device' });
  const back = `/device?${new URLSearchParams({ user_code: user_code ?? device.userCode })}`;
  return (
    <Stack>
      <output className="device-code" aria-label={t('Code')}>
        {device.userCode}
      </output>
      <dl className="device-facts">
        <dt>{t('Program')}</dt>
        <dd>{device.client || t('it gives no name')}</dd>
        <dt>{t('Asked from')}</dt>
        <dd>
          <code>{device.address}</code>
          {!device.sameAddress && t(', which is not the address of this browser')}
        </dd>
        <dt>{t('Asked')}</dt>
        <dd title={exact(device.createdAt)}>{ago(device.createdAt, Date.now())}</dd>
        <dt>{t('It gets')}</dt>
        <dd>{t('Everything that you may do, until this sign-in of yours ends')}</dd>
      </dl>
      {!device.sameAddress && (
        <Alert color="yellow" title={t('Is this your device?')} role="note">
          {t(
            'Approve it only if you have started this sign-in yourself, on a machine at that address. Nobody who helps you ever needs you to approve a code.',
          )}
        </Alert>
      )}
      {problem !== null && <Problem error={problem} />}
      {compare && (
        <Checkbox
          label={t('I have started this sign-in, and my terminal shows exactly this code')}
          checked={same}
          onChange={(e) => setSame(e.currentTarget.checked)}
        />
      )}
      {!device.recent && (
        <Text size="sm">
          {t('You have signed in more than 15 minutes ago.')}{' '}
          <Rich
            text="<a>Sign in again</a> to approve."
            parts={{ a: <Link to="/login" search={{ to: back, ...(tenant ? { tenant } : {}) }} /> }}
          />
        </Text>
      )}
      <Group grow>
        <Button variant="default" loading={busy} onClick={() => decide(false)}>
          {t('Deny')}
        </Button>
        <Button loading={busy} disabled={!device.recent || (compare && !same)} onClick={() => decide(true)}>
          {t('Approve')}
        </Button>
      </Group>
      <Button variant="subtle" size="xs" onClick={other}>
        {t('Type another code')}
      </Button>
    </Stack>
  );
}

function Decided({ approved }: { approved: boolean }) {
  const navigate = useNavigate();
  return (
    <Stack role="status">
      <StateMark
        look={
          approved
            ? { label: t('Approved'), tone: 'ok', shape: 'done' }
            : { label: t('Denied'), tone: 'attention', shape: 'hand' }
        }
      />
      <Text size="sm">
        {approved
          ? t('The device signs in within a few seconds. You can close this page.')
          : t(
              'The device gets nothing. If you did not start it, somebody may have tried to use your account: tell an admin.',
            )}
      </Text>
      <Button variant="default" onClick={() => navigate({ to: '/overview' })}>
        {t('Go to the console')}
      </Button>
    </Stack>
  );
}
