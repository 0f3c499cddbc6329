import { Alert, Button, Code, Group, Modal, Stack, Text, Textarea, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { useDenied } from '../../api/session';
import { Rich, t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { Problem } from '../../ui/states';
import { settingMutations } from './api';
import type { Row } from './model';

/** Changes one key. The hub is the judge of what a value may be. */
export function Editor({ row, version, close }: { row: Row; version: number; close: () => void }) {
  const [value, setValue] = useState(row.setting?.value ?? '');
  const [kind, setKind] = useState('');
  const key = row.family ? row.key + kind.trim() : row.key;
  const denied = useDenied('settings', 'update');
  const change = useMutation(settingMutations.change());
  const check = () => change.mutate({ map: row.map, key, to: value, version, dryRun: true });
  const store = (to: string | null) =>
    change.mutate(
      { map: row.map, key, to, version, dryRun: false },
      { onSuccess: (answer) => !answer.warnings?.length && close() },
    );
  const edit = (next: string) => {
    change.reset();
    setValue(next);
  };
  const ready = !row.family || kind.trim() !== '';
  return (
    <Modal opened onClose={close} title={row.setting ? t('Edit a setting') : t('Set a setting')} size="xl">
      <Stack>
        <Text size="sm">
          <Rich text="<key/> of <map/>" parts={{ key: <Code>{key}</Code>, map: <span>{row.map}</span> }} />
        </Text>
        {row.about && <Text size="sm">{row.about}</Text>}
        <Said change={change} />
        {row.family && (
          <TextInput
            label={row.rest.label}
            description={row.rest.description}
            placeholder={row.rest.example}
            required
            value={kind}
            onChange={(e) => setKind(e.currentTarget.value)}
          />
        )}
        <Textarea
          label={t('Value')}
          description={
            row.setting?.secret ? t('What is stored is sealed and never shown; a new value replaces it.') : undefined
          }
          placeholder={row.sample}
          rows={12}
          resize="vertical"
          spellCheck={false}
          autoComplete="off"
          styles={{ input: { fontFamily: 'monospace' } }}
          value={value}
          onChange={(e) => edit(e.currentTarget.value)}
        />
        <Group justify="space-between">
          <Group gap="xs">
            {row.sample && value === '' && (
              <Button variant="subtle" onClick={() => edit(row.sample)}>
                {t('Begin with the sample')}
              </Button>
            )}
            {row.setting && (
              <ActionButton
                why={denied}
                variant="subtle"
                color="red"
                loading={change.isPending}
                onClick={() => store(null)}
              >
                {t('Remove')}
              </ActionButton>
            )}
          </Group>
          <Group gap="xs">
            <ActionButton why={denied} variant="default" disabled={!ready} loading={change.isPending} onClick={check}>
              {t('Check')}
            </ActionButton>
            <ActionButton why={denied} disabled={!ready} loading={change.isPending} onClick={() => store(value)}>
              {t('Save')}
            </ActionButton>
          </Group>
        </Group>
      </Stack>
    </Modal>
  );
}

interface Outcome {
  error: unknown;
  data: { warnings?: string[] } | undefined;
  variables: { dryRun: boolean } | undefined;
}

/** What the hub said of the value. */
function Said({ change }: { change: Outcome }) {
  if (change.error) return <Problem error={change.error} />;
  if (!change.data) return null;
  const warnings = change.data.warnings ?? [];
  return (
    <Alert color={warnings.length > 0 ? 'yellow' : 'teal'} role="status">
      {change.variables?.dryRun ? t('The value is fine.') : t('Saved.')}
      {warnings.map((w) => (
        <Text key={w} size="sm">
          {t('Note: {{warning}}.', { warning: w })}
        </Text>
      ))}
    </Alert>
  );
}
