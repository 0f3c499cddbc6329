import { Button, type ButtonProps, Tooltip } from '@mantine/core';
import type { ComponentPropsWithoutRef } from 'react';

interface Props extends ButtonProps, Omit<ComponentPropsWithoutRef<'button'>, keyof ButtonProps> {
  /** Why the button cannot be used, for example which right is missing; empty if it can. */
  why: string;
}

/**
 * A button that changes something. One that cannot be used says why in a tooltip.
 * It keeps its place in the order of the keyboard, so that the focus shows it too.
 */
export function ActionButton({ why, disabled, onClick, ...rest }: Props) {
  const barred = why !== '';
  return (
    <Tooltip label={why} disabled={!barred} events={{ hover: true, focus: true, touch: true }} multiline maw={480}>
      <Button
        {...rest}
        {...(barred
          ? { 'data-disabled': true, 'aria-disabled': true }
          : { disabled: disabled ?? false, ...(onClick ? { onClick } : {}) })}
      />
    </Tooltip>
  );
}
