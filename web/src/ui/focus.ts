import { useEffect, useRef } from 'react';

/** How long a page may take to show its heading before the focus stays where it is. */
const patience = 5_000;

/**
 * Moves the focus to the heading of the page after each navigation, so that
 * a keyboard goes on there and a screen reader says where one is. Whoever has
 * moved the focus meanwhile keeps it.
 */
export function useHeadingFocus(path: string) {
  const before = useRef(path);
  useEffect(() => {
    if (before.current === path) return;
    before.current = path;
    const from = document.activeElement;
    const main = document.querySelector('main');
    if (!main) return;
    const stop = () => {
      seen.disconnect();
      clearTimeout(timer);
    };
    // The heading of the page that is being left may still be there: the one
    // that takes its place gets the focus, too.
    let given: Element | null = null;
    const focus = () => {
      const now = document.activeElement;
      if (now !== from && now !== given && now !== document.body && now !== null) return stop();
      const heading = main.querySelector<HTMLElement>('h2');
      if (!heading || heading === now) return;
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
      given = heading;
    };
    const seen = new MutationObserver(focus);
    const timer = setTimeout(stop, patience);
    seen.observe(main, { childList: true, subtree: true });
    focus();
    return stop;
  }, [path]);
}

/** Gives the focus back to what had it when something was opened. */
export function useOpener() {
  const opener = useRef<HTMLElement>(null);
  return {
    remember: () => {
      const now = document.activeElement;
      opener.current = now instanceof HTMLElement && now !== document.body ? now : null;
    },
    restore: () => {
      const to = opener.current;
      opener.current = null;
      // After the drawer has let go of the focus.
      requestAnimationFrame(() => to?.isConnected && to.focus());
    },
  };
}
