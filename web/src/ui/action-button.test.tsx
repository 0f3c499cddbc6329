import { MantineProvider } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ActionButton } from './action-button';

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const pressed = vi.fn();

function show(why: string, disabled = false) {
  pressed.mockReset();
  render(
    <MantineProvider env="test">
      <ActionButton why={why} disabled={disabled} onClick={pressed}>
        Sync
      </ActionButton>
    </MantineProvider>,
  );
  return screen.getByRole('button', { name: 'Sync' });
}

test('UX-A11-2 a button that cannot be used takes the focus, and says why when it has it', async () => {
  const button = show('You need the right applications sync on project x.', true);
  button.focus();
  expect(document.activeElement).toBe(button);
  fireEvent.focus(button);
  const tooltip = await screen.findByRole('tooltip');
  expect(tooltip.textContent).toBe('You need the right applications sync on project x.');
  expect(button.getAttribute('aria-describedby')).toBe(tooltip.id);
  expect(button.getAttribute('aria-disabled')).toBe('true');
});

test('a button that cannot be used does nothing, whether by mouse or by keyboard', () => {
  const button = show('An operation is in progress.');
  fireEvent.click(button);
  fireEvent.keyDown(button, { key: 'Enter' });
  expect(pressed).not.toHaveBeenCalled();
});

test('a button that can be used does, and has no tooltip', () => {
  const button = show('');
  fireEvent.focus(button);
  expect(screen.queryByRole('tooltip')).toBeNull();
  expect(button.getAttribute('aria-disabled')).toBeNull();
  fireEvent.click(button);
  expect(pressed).toHaveBeenCalledTimes(1);
});

test('a form may switch it off without a reason', () => {
  expect((show('', true) as HTMLButtonElement).disabled).toBe(true);
});
