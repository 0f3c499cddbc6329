import type { CompletionContext } from '@codemirror/autocomplete';
import { Alert, Button, Group, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useCallback, useState } from 'react';
import { HubError, sentence } from '../../api/errors';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { ActionButton } from '../../ui/action-button';
import { StateMark } from '../../ui/badges';
import { CodeEditor } from '../../ui/code-editor';
import { SectionTitle } from '../../ui/page';
import { Problem, Screen } from '../../ui/states';
import {
  accessMutations,
  accessQueries,
  type PolicyEffect,
  type PolicyKey,
  type PolicyPreview,
  type PolicyValues,
} from './api';
import './access.css';
import { number, t } from '../../texts';
import { builtIn, choices, readPolicy } from './model';
import { PolicyHistory } from './policy-history';

const files: { key: PolicyKey; label: string; about: string }[] = [
  { key: 'policy.csv', label: t('Rules'), about: t('Who may do what. Comments stay.') },
  {
    key: 'policy.tests',
    label: t('Tests'),
    about: t('A policy that fails one is not saved: t, subject, resource, action, object, allow.'),
  },
  {
    key: 'policy.org.csv',
    label: t('Denials'),
    about: t('What these rules deny, no other rule, role or project allows.'),
  },
];

type Loaded = {
  version: number;
  values: Record<string, string>;
  changed?: { updatedAt: string; updatedBy: string } | undefined;
};

/** The policy of the tenant with its tests and its past, and what a change would do before it is saved. */
export function Policy({ version, show }: { version: string; show: (version: string | undefined) => void }) {
  const stored = useQuery(accessQueries.policy());
  return (
    <Screen query={stored}>
      {(d) => <Editor key={d.version} stored={d} reload={() => void stored.refetch()} past={{ version, show }} />}
    </Screen>
  );
}

interface EditorProps {
  stored: Loaded;
  reload: () => void;
  past: { version: string; show: (version: string | undefined) => void };
}

function Editor({ stored, reload, past }: EditorProps) {
  const denied = useDenied('settings', 'update');
  const [draft, setDraft] = useState<PolicyValues>({});
  const [file, setFile] = useState<PolicyKey>('policy.csv');
  const [asked] = useDebouncedValue(draft, 400);
  const changed = Object.keys(draft).length > 0;
  const preview = useQuery({ ...accessQueries.preview(asked), placeholderData: (held) => held });
  const settled = asked === draft && !preview.isFetching;
  const save = useMutation(accessMutations.save());
  const text = (key: PolicyKey) => draft[key] ?? stored.values[key] ?? '';
  const edit = (key: PolicyKey, value: string) =>
    setDraft((held) => {
      const { [key]: _, ...rest } = held;
      return value === (stored.values[key] ?? '') ? rest : { ...rest, [key]: value };
    });
  const state = preview.data?.state;
  const wrong = (state?.problems.length ?? 0) + (state?.failedTests.length ?? 0);
  const why = denied || (wrong > 0 ? t('The policy has problems or fails tests; they are listed beside it.') : '');
  const known = useKnown(text('policy.csv'));
  const complete = useCallback(
    (c: CompletionContext) => {
      const line = c.state.doc.lineAt(c.pos);
      const found = choices(line.text.slice(0, c.pos - line.from), known);
      if (found.options.length === 0 || (!c.explicit && found.typed === 0 && line.text === '')) return null;
      return { from: c.pos - found.typed, options: found.options.map((label) => ({ label })), filter: false };
    },
    [known],
  );
  return (
    <>
      <Stack gap="xs">
        <Group justify="space-between">
          <SegmentedControl
            aria-label={t('Part of the policy')}
            size="xs"
            value={file}
            data={files.map(({ key, label }) => ({
              value: key,
              label: draft[key] === undefined ? label : `${label} •`,
            }))}
            onChange={(next) => setFile(files.find((f) => f.key === next)?.key ?? 'policy.csv')}
          />
          <Group gap="xs">
            <Text size="sm" c="dimmed" title={exact(stored.changed?.updatedAt)}>
              {stored.changed
                ? t('Changed {{time}} by {{updatedBy}}', {
                    time: ago(stored.changed.updatedAt, Date.now()),
                    updatedBy: stored.changed.updatedBy,
                  })
                : t('Never changed')}
            </Text>
            {changed && (
              <Button variant="subtle" color="gray" onClick={() => setDraft({})}>
                {t('Discard')}
              </Button>
            )}
            <ActionButton
              why={why}
              disabled={!changed || !settled || preview.isError}
              loading={save.isPending}
              onClick={() => save.mutate({ version: stored.version, values: draft })}
            >
              {t('Save policy')}
            </ActionButton>
          </Group>
        </Group>
        <Text size="sm" c="dimmed">
          {files.find((f) => f.key === file)?.about}
        </Text>
        {save.error && <Conflict error={save.error} reload={reload} />}
        <CodeEditor
          key={file}
          label={t('Policy: {{label}}', { label: files.find((f) => f.key === file)?.label ?? '' })}
          value={text(file)}
          {...(denied ? {} : { change: (value: string) => edit(file, value) })}
          complete={complete}
          marks={marksOf(file, state)}
        />
        <TextInput
          label={t('Default role')}
          description={t('What everybody who is signed in has, such as role:readonly; empty: nothing')}
          value={text('policy.default')}
          readOnly={denied !== ''}
          onChange={(e) => edit('policy.default', e.currentTarget.value)}
        />
      </Stack>
      <aside aria-label={t('Checks')}>
        <Checks
          preview={preview}
          tests={
            text('policy.tests')
              .split('\n')
              .filter((l) => /^\s*t\s*,/.test(l)).length
          }
          changed={changed}
        />
        <PolicyHistory settings={stored.version} {...past} />
      </aside>
    </>
  );
}

function Conflict({ error, reload }: { error: unknown; reload: () => void }) {
  const stale = error instanceof HubError && error.detail.status === 412;
  if (!stale) return <Problem error={error} />;
  return (
    <Alert color="yellow" role="alert" title={t('Somebody else has changed the settings meanwhile.')}>
      <Text size="sm">
        {t('Copy what you wrote before you read theirs; your text is then replaced by what is stored.')}
      </Text>
      <Button size="compact-sm" mt="xs" onClick={reload}>
        {t('Read what is stored')}
      </Button>
    </Alert>
  );
}

/** The lines of a file that problems name. */
function marksOf(file: PolicyKey, state: PolicyPreview['state'] | undefined): number[] {
  return (state?.problems ?? [])
    .filter((p) => p.includes(file))
    .flatMap((p) => [...p.matchAll(/line (\d+)/g)].map((m) => Number(m[1])));
}

function useKnown(csv: string) {
  const noAccounts = useDenied('accounts', 'get');
  const users = useQuery({ ...accessQueries.users(), enabled: !noAccounts });
  const projects = useQuery(accessQueries.projects());
  const lines = readPolicy(csv);
  const subjects = new Set(users.data?.items.map((u) => u.name) ?? []);
  const roles = new Set(builtIn);
  for (const l of lines) {
    (l.subject.startsWith('role:') ? roles : subjects).add(l.subject);
    if (l.kind === 'grant') roles.add(l.role);
  }
  return {
    subjects: [...subjects],
    roles: [...roles],
    objects: ['*', '*/*', ...(projects.data?.items.map((p) => `${p.metadata.name}/*`) ?? [])],
  };
}

function Checks({
  preview,
  tests,
  changed,
}: {
  preview: { data: PolicyPreview | undefined; error: unknown; isPending: boolean; refetch: () => unknown };
  tests: number;
  changed: boolean;
}) {
  return (
    <Screen query={preview}>
      {({ state, effects, more }) => (
        <Stack gap="lg">
          <section aria-label={t('Tests')}>
            <SectionTitle
              count={t('{{passed}} of {{n}} pass', {
                passed: number(tests - Math.min(tests, state.failedTests.length)),
                n: number(tests),
              })}
            >
              {t('Tests')}
            </SectionTitle>
            {state.problems.map((p) => (
              <Alert key={p} color="red" role="alert" title={t('Cannot be saved')} mt="xs">
                {sentence(p)}
              </Alert>
            ))}
            {state.failedTests.map((test) => (
              <Alert key={test} color="red" role="alert" title={t('A test fails')} mt="xs">
                {sentence(test)}
              </Alert>
            ))}
            {state.problems.length + state.failedTests.length === 0 && (
              <StateMark
                look={{
                  label: tests > 0 ? t('Every test passes') : t('The policy is in force'),
                  tone: 'ok',
                  shape: 'done',
                }}
                weight="quiet"
              />
            )}
            {state.warnings.map((w) => (
              <Text key={w} size="sm" mt="xs">
                {t('Note: {{text}}', { text: sentence(w) })}
              </Text>
            ))}
          </section>
          <section aria-label={t('What changes for whom')}>
            <SectionTitle count={changed ? effects.length : undefined}>{t('What changes for whom')}</SectionTitle>
            {!changed && (
              <Text c="dimmed">{t('Nothing yet: this shows who gains and loses which rights while you write.')}</Text>
            )}
            {changed && effects.length === 0 && <Text c="dimmed">{t('Nobody gains or loses a right.')}</Text>}
            {effects.slice(0, 100).map((e) => (
              <Effect key={`${e.subject} ${e.resource} ${e.action}`} effect={e} />
            ))}
            {(more || effects.length > 100) && <Text c="dimmed">{t('There are more than are shown.')}</Text>}
          </section>
        </Stack>
      )}
    </Screen>
  );
}

function Effect({ effect: e }: { effect: PolicyEffect }) {
  const who = e.subject || t('Everybody');
  const parts = [
    { label: t('Gains'), tone: 'ok', shape: 'done', names: e.gained, count: e.gainedCount ?? e.gained.length },
    { label: t('Loses'), tone: 'failed', shape: 'barred', names: e.lost, count: e.lostCount ?? e.lost.length },
  ] as const;
  return (
    <>
      {parts
        .filter((p) => p.count > 0)
        .map((p) => (
          <div className="effect" key={p.label}>
            <StateMark look={p} weight="quiet" />
            <div>
              <b>{who}</b> {e.action} {e.resource}
              <Text size="xs" c="dimmed" className="breakable">
                {p.names.slice(0, 3).join(', ')}
                {p.count > 3 && ` ${t('and {{n}} more', { n: number(p.count - Math.min(3, p.names.length)) })}`}
              </Text>
            </div>
          </div>
        ))}
    </>
  );
}
