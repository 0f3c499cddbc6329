import { Button, SegmentedControl, Table, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { count, t } from '../../../texts';
import { DriftBadge, HealthBadge, StateMark } from '../../../ui/badges';
import { SectionTitle } from '../../../ui/page';
import { Nothing } from '../../../ui/states';
import type { ApplicationSet } from './api';
import { keyOfSet, type Member, membersOf, type Rollout, type RolloutState, rolloutLooks } from './model';
import type { SetSearch } from './search';

/** So many applications are drawn at first, and more with each press. */
const portion = 100;

interface Props {
  set: ApplicationSet;
  rollout: Rollout | undefined;
  search: SetSearch;
  go: (change: SetSearch) => void;
}

/** The applications of a set as a tree or a table, those with problems first. */
export function Members({ set, rollout, search, go }: Props) {
  const [most, setMost] = useState(portion);
  const all = set.status?.resources ?? [];
  const found = membersOf(set, search.find ?? '');
  const shown = found.slice(0, most);
  const hidden = (set.status?.resourcesCount ?? 0) - all.length;
  const states = new Map(
    [...(rollout?.steps.flatMap((s) => s.applications) ?? []), ...(rollout?.rest ?? [])].map((a) => [a.application, a]),
  );
  return (
    <section aria-label={t('Applications')}>
      <SectionTitle count={all.length}>{t('Applications')}</SectionTitle>
      {all.length > 0 && (
        <div className="filters">
          <TextInput
            className="grow"
            aria-label={t('Find an application')}
            placeholder={t('Name')}
            leftSection={<IconSearch size={16} aria-hidden />}
            value={search.find ?? ''}
            onChange={(e) => go({ find: e.currentTarget.value })}
          />
          <SegmentedControl
            aria-label={t('View')}
            size="xs"
            value={search.view === 'table' ? 'table' : 'tree'}
            data={[
              { value: 'tree', label: t('Tree') },
              { value: 'table', label: t('Table') },
            ]}
            onChange={(view) => go({ view: view === 'table' ? 'table' : undefined })}
          />
        </div>
      )}
      {all.length === 0 && <Nothing title={t('It has made no application that you may see.')} />}
      {all.length > 0 && found.length === 0 && <Nothing title={t('No application matches the search.')} />}
      {found.length > 0 &&
        (search.view === 'table' ? (
          <Rows members={shown} states={states} />
        ) : (
          <Tree set={set} members={shown} states={states} />
        ))}
      {found.length > shown.length && (
        <Button variant="default" mt="sm" onClick={() => setMost(most + portion)}>
          {t('Show more')}
        </Button>
      )}
      {hidden > 0 && all.length > 0 && (
        <p className="quiet">
          {count(hidden, '{{n}} application more is not shown here.', '{{n}} applications more are not shown here.')}
        </p>
      )}
    </section>
  );
}

type States = ReadonlyMap<string, RolloutState>;

const keyOf = (m: Member) => ({ namespace: m.namespace || 'argocd', name: m.name });

function Tree({ set, members, states }: { set: ApplicationSet; members: readonly Member[]; states: States }) {
  return (
    <div className="set-tree">
      <div className="set-node set-root">
        <b className="breakable">{keyOfSet(set).name}</b>
        <HealthBadge status={set.status?.health?.status} cause={set.status?.health?.message} weight="quiet" />
      </div>
      <ul aria-label={t('Applications of {{name}}', { name: keyOfSet(set).name })}>
        {members.map((m) => (
          <li key={`${m.namespace}/${m.name}`}>
            <div className="set-node">
              <Link to="/applications/$namespace/$name" params={keyOf(m)} className="breakable">
                {m.name}
              </Link>
              <span className="set-marks">
                <HealthBadge status={m.health?.status} weight="quiet" />
                <DriftBadge status={m.status} weight="quiet" />
                <RolloutMark state={states.get(m.name)} />
              </span>
            </div>
          </li>
        ))}
      </ul>
    </div>
  );
}

function RolloutMark({ state }: { state: RolloutState | undefined }) {
  if (!state) return null;
  const step = state.step === '-1' ? t('no step') : t('step {{n}}', { n: state.step });
  const look = rolloutLooks[state.status];
  return <StateMark look={{ ...look, label: `${step}: ${look.label}` }} hint={state.message} weight="quiet" />;
}

function Rows({ members, states }: { members: readonly Member[]; states: States }) {
  const rolling = states.size > 0;
  return (
    <div className="wide">
      <Table highlightOnHover aria-label={t('Applications')} mt="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('Name')}</Table.Th>
            <Table.Th>{t('Health')}</Table.Th>
            <Table.Th>{t('Drift')}</Table.Th>
            {rolling && <Table.Th>{t('Rollout')}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {members.map((m) => (
            <Table.Tr key={`${m.namespace}/${m.name}`}>
              <Table.Td>
                <Link to="/applications/$namespace/$name" params={keyOf(m)} className="breakable">
                  {m.name}
                </Link>
              </Table.Td>
              <Table.Td>
                <HealthBadge status={m.health?.status} weight="quiet" />
              </Table.Td>
              <Table.Td>
                <DriftBadge status={m.status} weight="quiet" />
              </Table.Td>
              {rolling && (
                <Table.Td>
                  <RolloutMark state={states.get(m.name)} />
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
