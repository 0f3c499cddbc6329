import { Table, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { stringify } from 'yaml';
import { t } from '../../../texts';
import { Nothing, Screen } from '../../../ui/states';
import { type ApplicationSet, type Previewed, setQueries } from './api';

/** So many are listed; the search finds the rest. */
const listed = 200;

/** What the generators of a set return now: the parameters that each application is made with. */
export function Parameters({ set }: { set: ApplicationSet }) {
  const [find, setFind] = useState('');
  const found = useQuery(setQueries.parameters(set));
  return (
    <Screen
      query={found}
      empty={(p) =>
        p.items.every((i) => !i.parameters) ? <Nothing title={t('The generators return nothing.')} /> : undefined
      }
    >
      {(p) => {
        const items = p.items.filter((i) => i.parameters && matches(i, find));
        return (
          <>
            <TextInput
              aria-label={t('Find a parameter')}
              placeholder={t('Application or value')}
              leftSection={<IconSearch size={16} aria-hidden />}
              value={find}
              onChange={(e) => setFind(e.currentTarget.value)}
            />
            <div className="wide">
              <Table aria-label={t('Parameters')}>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t('Application')}</Table.Th>
                    <Table.Th>{t('Parameters')}</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {items.slice(0, listed).map((i) => (
                    <Table.Tr key={`${i.namespace}/${i.name}/${JSON.stringify(i.parameters)}`}>
                      <Table.Td className="breakable">{i.name || t('no name')}</Table.Td>
                      <Table.Td>
                        <pre className="set-parameters">{stringify(i.parameters, { lineWidth: 0 }).trim()}</pre>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
            {items.length > listed && <p className="quiet">{t('and {{n}} more', { n: items.length - listed })}</p>}
          </>
        );
      }}
    </Screen>
  );
}

const matches = (i: Previewed, find: string) =>
  `${i.name} ${JSON.stringify(i.parameters)}`.toLowerCase().includes(find.toLowerCase());
