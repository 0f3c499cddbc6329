import { Alert, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Fragment } from 'react';
import { sentence } from '../../api/errors';
import { Rich, t } from '../../texts';
import { SectionTitle } from '../../ui/page';
import { Shape } from '../../ui/shapes';
import { Screen } from '../../ui/states';
import { policyFacts } from './agent-policy';
import { clusterQueries } from './api';

const modes: Readonly<Record<string, string>> = {
  cluster: t('in the whole cluster'),
  namespaced: t('in the namespaces of its chart'),
  observe: t('to look, and not to change anything'),
};

/** What the owner of a cluster permits its agent to do, whatever the hub says. */
export function OwnersPolicy({ name }: { name: string }) {
  const policy = useQuery(clusterQueries.policy(name));
  return (
    <section aria-label={t('Policy of the owner')} className="owners-policy">
      <SectionTitle>{t('Policy of the owner')}</SectionTitle>
      <Text size="sm" c="dimmed" mb="xs">
        <Rich
          text="Its agent obeys it, whatever the hub says. It is set by <code>guard</code> in the values of the agent's chart."
          parts={{ code: <code /> }}
        />
      </Text>
      <Screen query={policy}>
        {(p) => (
          <>
            {p.broken && (
              <Alert
                color="red"
                role="alert"
                title={t('The policy cannot be read, so the agent permits nothing.')}
                mb="sm"
              >
                {sentence(p.broken)}
              </Alert>
            )}
            <dl className="facts-list cluster-terms">
              <dt>{t('Rights in Kubernetes')}</dt>
              <dd>
                {modes[p.mode] ?? p.mode}
                {p.namespaces?.length ? `: ${p.namespaces.join(', ')}` : ''}
              </dd>
              {policyFacts(p).map((f) => (
                <Fragment key={f.label}>
                  <dt>{f.label}</dt>
                  <dd className="breakable">
                    {f.permitted && !p.broken ? (
                      f.value
                    ) : (
                      <span className="state quiet" data-tone="attention">
                        <Shape name="barred" />
                        <span className="word">{p.broken ? t('not permitted') : f.value}</span>
                      </span>
                    )}
                  </dd>
                </Fragment>
              ))}
            </dl>
          </>
        )}
      </Screen>
    </section>
  );
}
