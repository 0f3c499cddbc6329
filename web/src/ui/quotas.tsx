import { Table } from '@mantine/core';
import type { ReactNode } from 'react';
import type { components } from '../api/schema.gen';
import { StateMark } from './badges';

type Item = components['schemas']['QuotaItem'];

const names: Record<string, string> = {
  applications: 'Applications',
  clusters: 'Clusters',
  repositories: 'Repositories',
  users: 'Members',
  tokens: 'Tokens',
  storageBytes: 'Storage',
  rendersPerMinute: 'Renders in a minute',
  requestsPerMinute: 'Requests in a minute',
};

const amount = (item: Item, value: number) =>
  item.quota === 'storageBytes' ? `${(value / 1024 ** 2).toFixed(1)} MiB` : value.toLocaleString('en');

/** What a tenant may have and has. */
export function QuotaTable({ items, action }: { items: Item[]; action?: (item: Item) => ReactNode }) {
  return (
    <Table aria-label="Quotas">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Of what</Table.Th>
          <Table.Th>Used</Table.Th>
          <Table.Th>Limit</Table.Th>
          <Table.Th>State</Table.Th>
          {action && <Table.Th aria-label="Actions" />}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {items.map((i) => (
          <Table.Tr key={i.quota}>
            <Table.Td>{names[i.quota] ?? i.quota}</Table.Td>
            <Table.Td>{i.rate ? 'not counted' : amount(i, i.used)}</Table.Td>
            <Table.Td>
              {i.limit === undefined ? 'none' : amount(i, i.limit)}
              {i.own && ' (set for this tenant)'}
            </Table.Td>
            <Table.Td>
              {(i.reached || (!i.rate && i.limit !== undefined)) && (
                <StateMark
                  look={
                    i.reached
                      ? { label: 'Reached', tone: 'failed', shape: 'failed' }
                      : { label: 'Within', tone: 'ok', shape: 'done' }
                  }
                  weight="quiet"
                />
              )}
            </Table.Td>
            {action && <Table.Td>{action(i)}</Table.Td>}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
