import { Table } from '@mantine/core';
import type { ReactNode } from 'react';
import type { components } from '../api/schema.gen';
import { number, t } from '../texts';
import { StateMark } from './badges';

type Item = components['schemas']['QuotaItem'];

const names: Record<string, string> = {
  applications: t('Applications'),
  clusters: t('Clusters'),
  repositories: t('Repositories'),
  users: t('Members'),
  tokens: t('Tokens'),
  storageBytes: t('Storage'),
  applicationSets: t('ApplicationSets'),
  applicationsPerSet: t('Applications of an ApplicationSet'),
  rendersPerMinute: t('Renders in a minute'),
  requestsPerMinute: t('Requests in a minute'),
  notificationsPerHour: t('Messages in an hour'),
};

const amount = (item: Item, value: number) =>
  item.quota === 'storageBytes' ? `${(value / 1024 ** 2).toFixed(1)} MiB` : number(value);

/** What a tenant may have and has. */
export function QuotaTable({ items, action }: { items: Item[]; action?: (item: Item) => ReactNode }) {
  return (
    <Table aria-label={t('Quotas')}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('Of what')}</Table.Th>
          <Table.Th>{t('Used')}</Table.Th>
          <Table.Th>{t('Limit')}</Table.Th>
          <Table.Th>{t('State')}</Table.Th>
          {action && <Table.Th aria-label={t('Actions')} />}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {items.map((i) => (
          <Table.Tr key={i.quota}>
            <Table.Td>{names[i.quota] ?? i.quota}</Table.Td>
            <Table.Td>{i.rate ? t('not counted') : amount(i, i.used)}</Table.Td>
            <Table.Td>
              {i.limit === undefined ? t('none') : amount(i, i.limit)}
              {i.own && ` ${t('(set for this tenant)')}`}
            </Table.Td>
            <Table.Td>
              {(i.reached || (!i.rate && i.limit !== undefined)) && (
                <StateMark
                  look={
                    i.reached
                      ? { label: t('Reached'), tone: 'failed', shape: 'failed' }
                      : { label: t('Within'), tone: 'ok', shape: 'done' }
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
