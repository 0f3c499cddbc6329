import { MantineProvider } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { QueryBar } from './query-bar';

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A field whose query and whose list the test has in its hands. */
function field() {
  const change = vi.fn();
  const bar = (query: string, busy: boolean) => (
    <MantineProvider env="test">
      <QueryBar query={query} change={change} busy={busy} wrong={undefined} />
    </MantineProvider>
  );
  const { rerender } = render(bar('', false));
  return {
    asked: () => change.mock.calls.map(([query]) => query),
    text: () => screen.getByRole<HTMLInputElement>('textbox').value,
    type: (value: string) => fireEvent.change(screen.getByRole('textbox'), { target: { value } }),
    become: (query: string, busy: boolean) => rerender(bar(query, busy)),
  };
}

test('UX-NAV-1 what is typed is asked for at once', () => {
  const { type, asked } = field();
  type('shop');
  expect(asked()).toEqual(['shop']);
});

test('UX-NAV-1 what is typed while the list is read is asked for when that has come, and only the last of it', () => {
  const { type, asked, become } = field();
  type('s');
  become('s', true);
  type('sh');
  type('sho');
  expect(asked()).toEqual(['s']);
  become('s', false);
  expect(asked()).toEqual(['s', 'sho']);
  vi.runAllTimers();
  expect(asked()).toEqual(['s', 'sho']);
});

test('UX-NAV-1 an answer that does not come holds up what is typed only until a pause', () => {
  const { type, asked, become, text } = field();
  type('s');
  become('s', true);
  type('sh');
  vi.runAllTimers();
  expect(asked()).toEqual(['s', 'sh']);
  type('sho');
  become('sh', true);
  expect(text()).toBe('sho');
});

test('UX-NAV-1 a query that comes late does not take the place of what was typed since', () => {
  const { type, asked, become, text } = field();
  type('s');
  type('sh');
  vi.runAllTimers();
  become('s', false);
  expect(text()).toBe('sh');
  become('sh', false);
  expect(text()).toBe('sh');
  expect(asked()).toEqual(['s', 'sh']);
});

test('UX-NAV-1 a query from elsewhere takes the place of the text, also of one that waits', () => {
  const { type, asked, become, text } = field();
  type('s');
  become('s', true);
  type('sh');
  become('health:degraded', true);
  expect(text()).toBe('health:degraded');
  vi.runAllTimers();
  expect(asked()).toEqual(['s']);
});

test('UX-NAV-1 leaving the field asks for what waits', () => {
  const { type, asked, become } = field();
  type('s');
  become('s', true);
  type('sh');
  fireEvent.blur(screen.getByRole('textbox'));
  expect(asked()).toEqual(['s', 'sh']);
});
