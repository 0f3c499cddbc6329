import { expect, test } from 'vitest';
import { signInProblem } from './problems';

test('SEC-H3 a sign-in page shows no text of its address', () => {
  const said = signInProblem('<b>call 555</b>');
  expect(said.title).toBe('The sign-in did not work.');
  expect(`${said.title}${said.fix}`).not.toContain('555');
});

test('AUTH-09 each reason of a sign-in that failed has words', () => {
  for (const word of ['state', 'consent', 'proof', 'refused', 'groups', 'offline', 'config', 'limit']) {
    expect(signInProblem(word).title).not.toBe('The sign-in did not work.');
  }
});
