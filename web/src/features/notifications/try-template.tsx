import { Button, Code, Group, Modal, NativeSelect, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { t } from '../../texts';
import { Problem } from '../../ui/states';
import { notificationMutations } from './api';

/** Renders a template for an application, and sends it. */
export function TryTemplate(props: {
  name: string;
  services: string[];
  close: () => void;
  sent: (id: string) => void;
}) {
  const { name, services, close, sent } = props;
  const [application, setApplication] = useState('');
  const [service, setService] = useState(services[0] ?? '');
  const [recipient, setRecipient] = useState('');
  const attempt = useMutation(notificationMutations.try());
  const run = (send: boolean) =>
    attempt.mutate(
      { name, application, service: service || 'console', recipient, send },
      { onSuccess: (d) => send && sent(d.id ?? '') },
    );
  return (
    <Modal opened onClose={close} title={t('Try {{name}}', { name })} size="lg">
      <Stack>
        <TextInput
          data-autofocus
          label={t('Application')}
          placeholder="argocd/web"
          value={application}
          onChange={(e) => setApplication(e.currentTarget.value)}
        />
        {services.length > 0 && (
          <NativeSelect
            label={t('Service')}
            data={services}
            value={service}
            onChange={(e) => setService(e.currentTarget.value)}
          />
        )}
        <TextInput
          label={t('Recipient')}
          description={t('A channel, an address or a name, as the service wants it')}
          value={recipient}
          onChange={(e) => setRecipient(e.currentTarget.value)}
        />
        {attempt.isError && <Problem error={attempt.error} />}
        {attempt.data && (
          <div>
            <Text size="xs" c="dimmed">
              {t('Message')}
            </Text>
            <Code block tabIndex={0} aria-label={t('Message')}>
              {JSON.stringify(attempt.data.message, null, 2)}
            </Code>
          </div>
        )}
        <Group justify="flex-end">
          <Button variant="default" disabled={!application} loading={attempt.isPending} onClick={() => run(false)}>
            {t('Preview')}
          </Button>
          <Button
            disabled={!application || services.length === 0}
            loading={attempt.isPending}
            onClick={() => run(true)}
          >
            {t('Send a test message')}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
