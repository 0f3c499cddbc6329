import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { t } from '../../texts';
import { Page } from '../../ui/page';
import { Nothing } from '../../ui/states';
import { accessQueries } from './api';
import { Ask } from './ask';
import { Groups, Roles } from './groups';
import { Members } from './members';
import { Policy } from './policy';
import { SignIn } from './sign-in';

const tabs = [
  { key: 'members', label: t('Members') },
  { key: 'groups', label: t('Groups') },
  { key: 'roles', label: t('Roles') },
  { key: 'policy', label: t('Policy') },
  { key: 'ask', label: t('Who can') },
  { key: 'sign-in', label: t('Single sign-on') },
] as const;

/** Who may do what in the tenant, and how people sign in. */
export function AccessPage() {
  const search = useSearch({ from: '/shell/access' });
  const navigate = useNavigate({ from: '/access' });
  const set = (change: Partial<Record<'tab' | 'q' | 'who' | 'member' | 'version' | 'test', string | undefined>>) =>
    void navigate({
      search: Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v)),
      replace: true,
    });
  const noAccounts = useDenied('accounts', 'get');
  const noSettings = useDenied('settings', 'get');
  const users = useQuery({ ...accessQueries.users(), enabled: !noAccounts });
  const tab = tabs.find((tab) => tab.key === search.tab)?.key ?? 'members';
  const denied = tab === 'members' ? noAccounts : noSettings;
  return (
    <Page
      title={t('Access')}
      about={t('Who may do what, and how people sign in')}
      tabs={tabs.map((tab) => (tab.key === 'members' ? { ...tab, count: users.data?.items.length } : tab))}
      tab={tab}
      open={(next) =>
        set({ tab: next, q: undefined, who: undefined, member: undefined, version: undefined, test: undefined })
      }
      two={tab === 'policy' && !denied}
    >
      {denied ? (
        <Nothing title={t('You may not see this.')}>{denied}</Nothing>
      ) : (
        <>
          {tab === 'members' && (
            <Members
              users={users}
              text={search.q ?? ''}
              find={(q) => set({ q })}
              member={search.member}
              open={(member) => set({ member })}
            />
          )}
          {tab === 'groups' && <Groups />}
          {tab === 'roles' && <Roles />}
          {tab === 'policy' && <Policy version={search.version ?? ''} show={(version) => set({ version })} />}
          {tab === 'ask' && <Ask question={search.q ?? ''} who={search.who ?? ''} set={set} />}
          {tab === 'sign-in' && <SignIn test={search.test ?? ''} show={(test) => set({ test })} />}
        </>
      )}
    </Page>
  );
}
