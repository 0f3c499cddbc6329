import { expect, test } from 'vitest';
import type { Delivery } from './api';
import { pretty, recipientOf, requestParts } from './model';

test('a request has a head and a body, and JSON is broken into lines', () => {
  expect(requestParts('POST https://ci.example.com/…\n{"a":1}')).toEqual({
    head: 'POST https://ci.example.com/…',
    body: '{\n  "a": 1\n}',
  });
  expect(requestParts('GET https://x')).toEqual({ head: 'GET https://x', body: '' });
  expect(pretty('no JSON')).toBe('no JSON');
});

test('a recipient is written as in subscriptions', () => {
  const of = (recipient: string) => recipientOf({ service: 'slack', recipient } as Delivery);
  expect(of('dev')).toBe('slack:dev');
  expect(of('')).toBe('slack');
});
