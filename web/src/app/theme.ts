import { createTheme, Drawer, Modal } from '@mantine/core';

/**
 * The look. Colours stand in app.css: variables that Mantine computes would
 * need style elements, which the content security policy refuses. So would
 * locking the scroll behind a dialog.
 */
export const theme = createTheme({
  respectReducedMotion: true,
  components: {
    Drawer: Drawer.extend({ defaultProps: { lockScroll: false, closeButtonProps: { 'aria-label': 'Close' } } }),
    Modal: Modal.extend({ defaultProps: { lockScroll: false, closeButtonProps: { 'aria-label': 'Close' } } }),
  },
});
