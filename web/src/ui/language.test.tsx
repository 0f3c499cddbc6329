import { MantineProvider, Menu } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import type { ReactNode } from 'react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { chosenLanguage } from '../texts/language';
import { LanguageChoice, LanguageItems } from './language';

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
      {children}
    </MantineProvider>,
  );

test('UX-A11-5 the menu offers each language by its own name, keeps the choice and loads the page anew', () => {
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
  expect(chosenLanguage()).toBe('ja');
  expect(reload).toHaveBeenCalledTimes(1);
  cleanup();
  show(menu);
  expect(item('日本語').getAttribute('aria-checked')).toBe('true');
  fireEvent.click(item('As the browser'));
  expect(chosenLanguage()).toBeUndefined();
  expect(reload).toHaveBeenCalledTimes(2);
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
