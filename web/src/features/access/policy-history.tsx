import { Alert, Button, Group, Modal, Stack, Text } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useDenied } from '../../api/session';
import { ago, exact } from '../../format/format';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';
import { SectionTitle } from '../../ui/page';
import { Problem, Screen } from '../../ui/states';
import { accessMutations, accessQueries, type PolicyKeyChange, type PolicyVersion } from './api';
import { lineDiff } from './line-diff';
import './policy-history.css';

interface Props {
  /** Version of the settings that the page shows. */
  settings: number;
  /** Number of the version that is looked at; empty: none. */
  version: string;
  show: (version: string | undefined) => void;
}

/** Who has changed the policy, when and how, and the way back. */
export function PolicyHistory({ settings, version, show }: Props) {
  const versions = useQuery(accessQueries.versions());
  return (
    <section aria-label={t('History')} className="policy-history">
      <Screen query={versions}>
        {({ items, more }) => (
          <>
            <SectionTitle count={items.length}>{t('History')}</SectionTitle>
            {items.length === 0 && <Text c="dimmed">{t('Each change is kept from now on, with who made it.')}</Text>}
            <ol>
              {items.map((v) => (
                <li key={v.number}>
                  <Button variant="subtle" size="compact-sm" onClick={() => show(String(v.number))}>
                    {t('Version {{number}}', { number: v.number })}
                  </Button>
                  <Origin version={v} />
                </li>
              ))}
            </ol>
            {more && (
              <Text size="xs" c="dimmed">
                {t('Older versions: capstan admin settings rbac history')}
              </Text>
            )}
          </>
        )}
      </Screen>
      {version !== '' && <Past settings={settings} number={version} close={() => show(undefined)} />}
    </section>
  );
}

function Origin({ version: v }: { version: PolicyVersion }) {
  const values = { by: v.by || t('unknown'), time: ago(v.at, Date.now()), keys: v.changed.join(', ') };
  return (
    <Text size="xs" c="dimmed" className="breakable" title={exact(v.at)}>
      {v.reverts
        ? t('{{by}}, {{time}}, back to version {{reverts}}: {{keys}}', { ...values, reverts: v.reverts })
        : t('{{by}}, {{time}}: {{keys}}', values)}
    </Text>
  );
}

function Past({ settings, number, close }: { settings: number; number: string; close: () => void }) {
  const past = useQuery(accessQueries.version(number));
  const denied = useDenied('settings', 'update');
  const revert = useMutation(accessMutations.revert());
  return (
    <Modal opened onClose={close} title={t('Version {{number}} of the policy', { number })} size="xl">
      <Screen query={past}>
        {({ version, changes, since }) => (
          <Stack>
            <Origin version={version} />
            <section aria-label={t('What it changed')}>
              <SectionTitle>{t('What it changed')}</SectionTitle>
              <Changes all={changes} none={t('It changed nothing that you may read.')} />
            </section>
            <section aria-label={t('What going back changes')}>
              <SectionTitle>{t('What going back to it changes')}</SectionTitle>
              <Changes
                all={since.map((c) => ({ key: c.key, before: c.after, after: c.before }))}
                none={t('The policy is as it was then.')}
              />
            </section>
            {revert.error && <Problem error={revert.error} />}
            {since.length > 0 && (
              <Alert color="yellow" role="note" title={t('Going back is a change like every other')}>
                {t('The tests of that version have to pass, and you have to keep the right to change the policy.')}
              </Alert>
            )}
            <Group justify="end">
              <Button variant="default" onClick={close}>
                {t('Close')}
              </Button>
              {since.length > 0 && (
                <ActionButton
                  why={denied}
                  loading={revert.isPending}
                  // The policy that is read again gives the page a new editor, and its dialog has to go then, too.
                  onClick={() => void revert.mutateAsync({ number, version: settings }).then(close, () => undefined)}
                >
                  {t('Go back to version {{number}}', { number })}
                </ActionButton>
              )}
            </Group>
          </Stack>
        )}
      </Screen>
    </Modal>
  );
}

function Changes({ all, none }: { all: PolicyKeyChange[]; none: string }) {
  if (all.length === 0) return <Text c="dimmed">{none}</Text>;
  return all.map((c) => {
    const lines = lineDiff(c.before, c.after);
    return (
      <figure key={c.key} className="policy-change">
        <figcaption>{c.key}</figcaption>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
        <pre tabIndex={0}>
          {lines.length === 0 && <span>{t('Only the order or empty lines differ.')}</span>}
          {lines.map((l, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: lines may be equal, and the list never changes
            <span key={i} data-sign={l.sign}>{`${l.sign} ${l.text}\n`}</span>
          ))}
        </pre>
      </figure>
    );
  });
}
