import { Button, createTheme, Drawer, Menu, Modal } from '@mantine/core';
import { t } from '../texts';

/**
 * The look. Colours stand in app.css: variables that Mantine computes would
 * need style elements, which the content security policy refuses. So would
 * locking the scroll behind a dialog.
 */
export const theme = createTheme({
  defaultRadius: 'md',
  respectReducedMotion: true,
  components: {
    Button: Button.extend({
      defaultProps: { variant: 'filled' },
      // Without a colour of its own a light button has the accent, like a filled one. Mantine's blue is that of
      // operations in progress.
      vars: (_, { variant, color }) => ({
        root:
          (variant === 'light' || variant === 'subtle') && !color
            ? {
                '--button-bg': variant === 'light' ? 'var(--mantine-primary-color-light)' : 'transparent',
                '--button-hover': 'var(--mantine-primary-color-light-hover)',
                '--button-color': 'var(--mantine-primary-color-light-color)',
              }
            : {},
      }),
    }),
    Drawer: Drawer.extend({ defaultProps: { lockScroll: false, closeButtonProps: { 'aria-label': t('Close') } } }),
    // What gets the focus first must be an entry: screen readers do not find an empty element.
    Menu: Menu.extend({ defaultProps: { withInitialFocusPlaceholder: false } }),
    Modal: Modal.extend({ defaultProps: { lockScroll: false, closeButtonProps: { 'aria-label': t('Close') } } }),
  },
});
