import { expect, test } from 'vitest';
import { HubError, sentence, signedOut, words, worthRetrying } from './errors';

const answer = (status: number, body: string) => HubError.from(new Response(body, { status }));

test("an error of the hub keeps its cause's words, fix and reference", async () => {
  const body = { code: 'CAP-1401', message: 'the password is wrong', fix: 'check it', request_id: 'r1' };
  expect(words(await answer(401, JSON.stringify(body)))).toEqual({
    title: 'The password is wrong.',
    fix: 'Check it.',
    reference: 'CAP-1401 · r1',
  });
});

test.each(['', '<html>', 'null', '[]', '{"message": 5}'])(
  'an answer that is no error of ours (%s) still has words',
  async (body) => {
    expect(words(await answer(502, body))).toEqual({ title: 'The hub answered 502.' });
  },
);

test('a network failure does not show what the browser said', () => {
  expect(words(new TypeError('Failed to fetch')).title).toBe('The hub cannot be reached.');
});

test.each([
  [401, false],
  [404, false],
  [429, true],
  [503, true],
])('an answer with status %i is tried again: %s', async (status, want) => {
  expect(worthRetrying(await answer(status, '{}'))).toBe(want);
});

test('only status 401 asks for a sign-in', async () => {
  expect(signedOut(await answer(401, '{}'))).toBe(true);
  expect(signedOut(await answer(403, '{}'))).toBe(false);
  expect(signedOut(new Error('x'))).toBe(false);
});

test.each([
  ['', ''],
  ['a word', 'A word.'],
  ['Why?', 'Why?'],
  ['policy.csv, line 2: too few fields', 'policy.csv, line 2: too few fields.'],
])('%j becomes the sentence %j', (given, want) => expect(sentence(given)).toBe(want));
