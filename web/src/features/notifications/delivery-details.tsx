import { Code, Stack, Text, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Fragment } from 'react';
import { useDenied } from '../../api/session';
import { exact } from '../../format/format';
import { number, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { Screen } from '../../ui/states';
import { type Attempt, type Delivery, notificationMutations, notificationQueries } from './api';
import { lookOf, pretty, recipientOf, requestParts } from './model';

/** One message: what it says, and each request with its answer. */
export function DeliveryDetails({ id, open }: { id: string; open: (id: string) => void }) {
  const delivery = useQuery(notificationQueries.delivery(id));
  return <Screen query={delivery}>{(d) => <Details delivery={d} open={open} />}</Screen>;
}

function Details({ delivery: d, open }: { delivery: Delivery; open: (id: string) => void }) {
  const denied = useDenied('applications', 'update');
  const redeliver = useMutation(notificationMutations.redeliver());
  const waiting = d.state === 'pending' ? t('It is still being sent.') : '';
  return (
    <Stack>
      <dl className="facts-list">
        <dt>{t('State')}</dt>
        <dd>
          <StateMark look={lookOf(d.state)} />
        </dd>
        {d.reason && (
          <>
            <dt>{t('Reason')}</dt>
            <dd className="breakable">{d.reason}</dd>
          </>
        )}
        <dt>{t('Application')}</dt>
        <dd>
          <Link to="/applications/$namespace/$name" params={{ namespace: d.namespace, name: d.name }}>
            {d.namespace}/{d.name}
          </Link>
        </dd>
        <dt>{t('Recipient')}</dt>
        <dd className="breakable">{recipientOf(d)}</dd>
        <dt>{t('Trigger')}</dt>
        <dd>{d.trigger || t('Somebody tried a template')}</dd>
        <dt>{t('Templates')}</dt>
        <dd>{d.templates.join(', ')}</dd>
        <dt>{t('Decided')}</dt>
        <dd>{exact(d.createdAt)}</dd>
        {d.dueAt && (
          <>
            <dt>{t('Next attempt')}</dt>
            <dd>{exact(d.dueAt)}</dd>
          </>
        )}
        {d.redelivers && (
          <>
            <dt>{t('Repeats')}</dt>
            <dd>
              <button type="button" className="name plain" onClick={() => open(d.redelivers ?? '')}>
                {t('An earlier delivery')}
              </button>
            </dd>
          </>
        )}
      </dl>
      <ActionButton
        variant="default"
        why={denied || waiting}
        loading={redeliver.isPending}
        onClick={() => redeliver.mutate(d.id ?? '', { onSuccess: (next) => open(next.id ?? '') })}
      >
        {t('Send it once more')}
      </ActionButton>
      <Part title={t('Message')} text={JSON.stringify(d.message, null, 2)} />
      {d.attempts.map((attempt, i) => (
        <AttemptView key={attempt.at} attempt={attempt} ordinal={i + 1} />
      ))}
    </Stack>
  );
}

function AttemptView({ attempt, ordinal }: { attempt: Attempt; ordinal: number }) {
  return (
    <Stack gap={4} component="section" aria-label={t('Attempt {{ordinal}}', { ordinal: number(ordinal) })}>
      <Title order={3}>{t('Attempt {{ordinal}}', { ordinal: number(ordinal) })}</Title>
      <Text size="sm" c="dimmed">
        {t('{{time}}, in {{ms}} ms', { time: exact(attempt.at), ms: number(attempt.tookMs) })}
      </Text>
      {attempt.error && (
        <Text size="sm" className="breakable">
          {attempt.error}
        </Text>
      )}
      {(attempt.requests ?? []).map((request, i) => {
        const { head, body } = requestParts(request);
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: requests of an attempt never change places
          <Fragment key={i}>
            <Text size="sm" ff="monospace" className="breakable">
              {head}
            </Text>
            {body && <Part title={t('Body')} text={body} />}
          </Fragment>
        );
      })}
      {(attempt.status || attempt.answer) && (
        <Part
          title={attempt.status ? t('Answer {{status}}', { status: String(attempt.status) }) : t('Answer')}
          text={pretty(attempt.answer ?? '')}
        />
      )}
    </Stack>
  );
}

function Part({ title, text }: { title: string; text: string }) {
  return (
    <div>
      <Text size="xs" c="dimmed">
        {title}
      </Text>
      {text && (
        <Code block tabIndex={0} aria-label={title} className="breakable">
          {text}
        </Code>
      )}
    </div>
  );
}
