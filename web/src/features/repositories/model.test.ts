import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { inputOf, kinds, kindsFor, overSSH, templateOf } from './model';

const kind = (key: string) => kinds.find((k) => k.key === key);

test('UI-16 an address over SSH is told from one over https', () => {
  expect(overSSH('git@git.example.com:team/a.git')).toBe(true);
  expect(overSSH('ssh://git@git.example.com/a')).toBe(true);
  expect(overSSH('https://git.example.com/a')).toBe(false);
});

test('UI-16 only kinds of credentials that fit are offered', () => {
  expect(kindsFor('git@git.example.com:a', 'git').map((k) => k.key)).toEqual(['none', 'ssh']);
  expect(kindsFor('https://charts.example.com', 'helm').map((k) => k.key)).toEqual(['none', 'password', 'tls']);
  expect(kindsFor('https://git.example.com/a', 'git').length).toBe(kinds.length - 1);
});

test('UI-16 what is sent has the fields of the kind alone, and numbers as numbers', () => {
  const form = {
    url: ' https://git.example.com/a ',
    type: 'git',
    username: 'left over',
    password: 'left over',
    githubAppID: '12',
    githubAppPrivateKey: 'key',
    depth: '5',
    enableLfs: false,
  };
  expect(inputOf(form, kind('github'))).toEqual({
    url: 'https://git.example.com/a',
    type: 'git',
    githubAppID: 12,
    githubAppPrivateKey: 'key',
    depth: 5,
  });
  expect(inputOf(form, kind('none'))).toEqual({ url: 'https://git.example.com/a', type: 'git', depth: 5 });
});

test('UI-16 a credential template is the Secret of Argo CD, whatever its values have', () => {
  const hostile = 'a: "b"\nstringData: {url: x}';
  const made = parse(
    templateOf('team', { url: 'https://git.example.com/', username: 'x', password: hostile }, kind('password')),
  );
  expect(made.metadata.labels).toEqual({ 'argocd.argoproj.io/secret-type': 'repo-creds' });
  expect(made.stringData).toEqual({ url: 'https://git.example.com/', username: 'x', password: hostile });
});
