interface Words {
  title: string;
  fix: string;
}

const again = 'Begin again below.';
const admin = 'Try again; if it stays so, show this to an admin of your organisation.';

const problems = new Map<string, Words>([
  [
    'state',
    {
      title: 'This sign-in was begun in another browser, took longer than ten minutes, or is finished already.',
      fix: again,
    },
  ],
  [
    'consent',
    {
      title: 'The sign-in was declined at your identity provider.',
      fix: 'Sign in again and agree, or ask for access there.',
    },
  ],
  ['proof', { title: 'The answer of your identity provider does not prove who you are.', fix: admin }],
  ['refused', { title: 'Your account may not sign in here.', fix: 'Ask an admin of your organisation.' }],
  [
    'groups',
    {
      title: 'You are in so many groups that your identity provider leaves them out.',
      fix: 'An admin lets the provider send only the groups of the application, or lets the hub ask for them.',
    },
  ],
  ['offline', { title: 'Your identity provider does not answer.', fix: 'Try again in a few minutes.' }],
  [
    'config',
    {
      title: 'Single sign-on is not set up for this.',
      fix: 'Check the tenant and the address of this console, or show this to an admin of your organisation.',
    },
  ],
  ['limit', { title: 'There were too many sign-ins.', fix: 'Wait a few minutes and try again.' }],
]);

/** What a sign-in page says of a word in its address. Nothing else of it is ever shown. */
export function signInProblem(word: string): Words {
  return problems.get(word) ?? { title: 'The sign-in did not work.', fix: admin };
}
