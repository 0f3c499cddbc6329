import { t } from '../../texts';

interface Words {
  title: string;
  fix: string;
}

const again = t('Begin again below.');
const admin = t('Try again; if it stays so, show this to an admin of your organisation.');

const problems = new Map<string, Words>([
  [
    'state',
    {
      title: t('This sign-in was begun in another browser, took longer than ten minutes, or is finished already.'),
      fix: again,
    },
  ],
  [
    'consent',
    {
      title: t('The sign-in was declined at your identity provider.'),
      fix: t('Sign in again and agree, or ask for access there.'),
    },
  ],
  ['proof', { title: t('The answer of your identity provider does not prove who you are.'), fix: admin }],
  ['refused', { title: t('Your account may not sign in here.'), fix: t('Ask an admin of your organisation.') }],
  [
    'groups',
    {
      title: t('You are in so many groups that your identity provider leaves them out.'),
      fix: t('An admin lets the provider send only the groups of the application, or lets the hub ask for them.'),
    },
  ],
  ['offline', { title: t('Your identity provider does not answer.'), fix: t('Try again in a few minutes.') }],
  [
    'config',
    {
      title: t('Single sign-on is not set up for this.'),
      fix: t('Check the tenant and the address of this console, or show this to an admin of your organisation.'),
    },
  ],
  ['limit', { title: t('There were too many sign-ins.'), fix: t('Wait a few minutes and try again.') }],
]);

/** What a sign-in page says of a word in its address. Nothing else of it is ever shown. */
export function signInProblem(word: string): Words {
  return problems.get(word) ?? { title: t('The sign-in did not work.'), fix: admin };
}
