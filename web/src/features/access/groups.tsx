import { Table, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { number, Rich, t } from '../../texts';
import { Nothing, Problem, Screen } from '../../ui/states';
import { accessQueries } from './api';
import { builtIn, groupsOf, readPolicy, rolesOf } from './model';

/** The groups that the policy or projects give rights. */
export function Groups() {
  const policy = useQuery(accessQueries.policy());
  const noAccounts = useDenied('accounts', 'get');
  const users = useQuery({ ...accessQueries.users(), enabled: !noAccounts });
  const projects = useQuery(accessQueries.projects());
  const accounts = new Set(users.data?.items.map((u) => u.name) ?? []);
  const places = (projects.data?.items ?? []).map((p) => ({
    name: p.metadata.name,
    roles: (p.spec.roles ?? []).map((r) => ({ name: r.name, groups: r.groups ?? [] })),
  }));
  const failed = policy.data && (users.error ?? projects.error);
  if (failed) return <Problem error={failed} />;
  return (
    <Screen query={policy}>
      {(d) => {
        const groups = groupsOf(readPolicy(d.values['policy.csv'] ?? ''), accounts, places);
        if (groups.length === 0) {
          return (
            <Nothing title={t('No group has rights.')}>
              {t('Groups come from the claims of a sign-in.')}{' '}
              <Rich
                text="<a>Give one a role</a> with a line such as <code/>."
                parts={{
                  a: <Link to="/access" search={{ tab: 'policy' }} />,
                  code: <code>g, shop-developers, role:readonly</code>,
                }}
              />
            </Nothing>
          );
        }
        return (
          <Table highlightOnHover aria-label={t('Groups')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('Group')}</Table.Th>
                <Table.Th>{t('Roles')}</Table.Th>
                <Table.Th className="second">{t('Given in')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {groups.map((g) => (
                <Table.Tr key={g.name}>
                  <Table.Td className="breakable">{g.name}</Table.Td>
                  <Table.Td className="breakable">{g.roles.join(', ')}</Table.Td>
                  <Table.Td className="second">{g.where.join(', ')}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        );
      }}
    </Screen>
  );
}

/** The roles of the policy and of accounts, and who has them. */
export function Roles() {
  const policy = useQuery(accessQueries.policy());
  const noAccounts = useDenied('accounts', 'get');
  const users = useQuery({ ...accessQueries.users(), enabled: !noAccounts });
  if (policy.data && users.error) return <Problem error={users.error} />;
  return (
    <Screen query={policy}>
      {(d) => (
        <Table highlightOnHover aria-label={t('Roles')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('Role')}</Table.Th>
              <Table.Th>{t('Rules')}</Table.Th>
              <Table.Th>{t('Given to')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rolesOf(readPolicy(d.values['policy.csv'] ?? ''), users.data?.items ?? []).map((r) => (
              <Table.Tr key={r.name}>
                <Table.Td>
                  <code>{r.name}</code>
                  {d.values['policy.default'] === r.name && (
                    <Text size="xs" c="dimmed">
                      {t('everybody who is signed in has it')}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td>
                  {(builtIn.includes(r.name) || r.name === 'role:platform-admin') && t('built in')}
                  {r.rules > 0 && ` ${number(r.rules)}`}
                  {r.denials > 0 && t(', {{n}} of them deny', { n: number(r.denials) })}
                </Table.Td>
                <Table.Td className="breakable">
                  {r.holders.join(', ') || (users.data ? t('nobody') : t('nobody by the policy'))}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Screen>
  );
}
