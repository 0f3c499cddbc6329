import { MantineProvider, Menu } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, renderHook, screen, waitFor } from '@testing-library/react';
import type { ReactNode } from 'react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { chosenLanguage } from '../texts/language';
import { LanguageChoice, LanguageItems, useAccountLanguage } from './language';

const reload = vi.fn();

beforeEach(() => {
  localStorage.clear();
  reload.mockClear();
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
  vi.stubGlobal('location', { ...window.location, reload });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const show = (children: ReactNode) =>
  render(
    <MantineProvider withCssVariables={false} withGlobalClasses={false} env="test">
      <QueryClientProvider client={new QueryClient()}>{children}</QueryClientProvider>
    </MantineProvider>,
  );

test('UX-A11-5 the menu offers each language by its own name, keeps the choice with the account and loads the page anew', async () => {
  const asked: unknown[] = [];
  let status = 204;
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push([request.method, new URL(request.url).pathname, await request.json()]);
    return status === 204 ? new Response(null, { status }) : Response.json({ code: 'Internal' }, { status });
  });
  const menu = (
    <Menu opened>
      <Menu.Dropdown>
        <LanguageItems />
      </Menu.Dropdown>
    </Menu>
  );
  show(menu);
  const item = (name: string) => screen.getByRole('menuitemradio', { name });
  expect(item('As the browser').getAttribute('aria-checked')).toBe('true');
  expect(item('English').lang).toBe('en');
  expect(item('日本語').lang).toBe('ja');
  fireEvent.click(item('日本語'));
  await waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  expect(chosenLanguage()).toBe('ja');
  cleanup();
  show(menu);
  expect(item('日本語').getAttribute('aria-checked')).toBe('true');
  fireEvent.click(item('As the browser'));
  await waitFor(() => expect(reload).toHaveBeenCalledTimes(2));
  expect(chosenLanguage()).toBeUndefined();
  // What the account does not keep is not chosen in the browser either.
  status = 503;
  fireEvent.click(item('English'));
  await waitFor(() => expect(asked).toHaveLength(3));
  expect(asked).toEqual(['ja', '', 'en'].map((language) => ['PUT', '/api/v1/me/language', { language }]));
  expect(chosenLanguage()).toBeUndefined();
});

test('UX-A11-5 the page is loaded anew in the language of the account, once', () => {
  renderHook(() => useAccountLanguage(''));
  renderHook(() => useAccountLanguage('en'));
  expect(reload).not.toHaveBeenCalled();
  renderHook(() => useAccountLanguage('ja'));
  expect(chosenLanguage()).toBe('ja');
  expect(reload).toHaveBeenCalledTimes(1);
  // Where nothing can be kept, it would never end.
  localStorage.clear();
  const keep = vi.spyOn(Storage.prototype, 'setItem').mockImplementation(() => undefined);
  renderHook(() => useAccountLanguage('ja'));
  expect(reload).toHaveBeenCalledTimes(1);
  keep.mockRestore();
});

test('UX-A11-5 a page without a menu offers the same choice at its foot', () => {
  show(<LanguageChoice />);
  screen.getByRole('group', { name: 'Language' });
  const button = (name: string) => screen.getByRole('button', { name });
  expect(button('As the browser').getAttribute('aria-pressed')).toBe('true');
  expect(button('日本語').lang).toBe('ja');
  fireEvent.click(button('English'));
  expect(chosenLanguage()).toBe('en');
  fireEvent.click(button('日本語'));
  expect(chosenLanguage()).toBe('ja');
  fireEvent.click(button('As the browser'));
  expect(chosenLanguage()).toBeUndefined();
  expect(reload).toHaveBeenCalledTimes(3);
});
