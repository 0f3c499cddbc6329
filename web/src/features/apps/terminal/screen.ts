import { FitAddon } from '@xterm/addon-fit';
import { type ITheme, Terminal } from '@xterm/xterm';
import { number, t } from '../../../texts';
import { safeURL } from '../annotations';
import type { Size } from './session';
import { openStrictly } from './strict';

const colours = [
  'black',
  'red',
  'green',
  'yellow',
  'blue',
  'magenta',
  'cyan',
  'white',
  'brightBlack',
  'brightRed',
  'brightGreen',
  'brightYellow',
  'brightBlue',
  'brightMagenta',
  'brightCyan',
  'brightWhite',
] as const satisfies (keyof ITheme)[];

/** The colours of the console's theme, from the variables of terminal.css. */
function themeOf(element: Element): ITheme {
  const style = getComputedStyle(element);
  const of = (name: string) => style.getPropertyValue(name).trim();
  const theme: ITheme = {
    background: of('--terminal-ground'),
    foreground: of('--terminal-text'),
    cursor: of('--terminal-text'),
    cursorAccent: of('--terminal-ground'),
    selectionBackground: of('--terminal-selection'),
    scrollbarSliderBackground: of('--edge'),
    scrollbarSliderHoverBackground: of('--text-3'),
    scrollbarSliderActiveBackground: of('--text-3'),
  };
  colours.forEach((name, i) => {
    theme[name] = of(`--ansi-${i}`);
  });
  return theme;
}

/** Bytes that may wait to be drawn; what comes beyond them is left out, and that is said. */
const mostWaiting = 16 << 20;

/** What is typed, and what a person does with the screen. */
interface Hooks {
  type: (text: string) => void;
  bytes: (text: string) => void;
  resize: (size: Size) => void;
  /** Leaves the screen: every other key belongs to the shell. */
  leave: () => void;
}

/** The screen of a terminal in an element, until it is removed. */
export class TerminalScreen {
  readonly terminal: Terminal;
  private readonly fit = new FitAddon();
  private readonly watch: ResizeObserver;
  private waiting = 0;
  private left = 0;

  constructor(
    private readonly parent: HTMLElement,
    hooks: Hooks,
  ) {
    this.terminal = new Terminal({
      fontFamily: getComputedStyle(parent).fontFamily,
      fontSize: 13,
      lineHeight: 1.2,
      scrollback: 5000,
      cursorBlink: false,
      minimumContrastRatio: 4.5,
      screenReaderMode: true,
      disableStdin: true,
      theme: themeOf(parent),
      linkHandler: { activate: (_, address) => openLink(address) },
    });
    this.terminal.loadAddon(this.fit);
    openStrictly(this.terminal, parent);
    this.terminal.onData(hooks.type);
    this.terminal.onBinary(hooks.bytes);
    this.terminal.onResize(({ rows, cols }) => hooks.resize({ rows, cols }));
    this.terminal.attachCustomKeyEventHandler((e) => this.key(e, hooks.leave));
    this.watch = new ResizeObserver(() => this.fit.fit());
    this.watch.observe(parent);
    this.fit.fit();
  }

  get size(): Size {
    return { rows: this.terminal.rows, cols: this.terminal.cols };
  }

  /** Draws output. More than can be drawn in time is left out. */
  write(bytes: Uint8Array) {
    if (this.waiting > mostWaiting) {
      this.left += bytes.length;
      return;
    }
    this.waiting += bytes.length;
    this.terminal.write(bytes, () => {
      this.waiting -= bytes.length;
      if (this.waiting > 0 || this.left === 0) return;
      const said = t('{{n}} bytes came faster than they can be shown', { n: number(this.left) });
      this.left = 0;
      this.say(said);
    });
  }

  /** Writes a line of the console's own. */
  say(text: string) {
    this.terminal.write(`\r\n\x1b[0;2m[${text}]\x1b[0m\r\n`);
  }

  /** Whether what is typed goes to the shell. */
  set typing(on: boolean) {
    this.terminal.options.disableStdin = !on;
  }

  /** Takes the colours again, after a change of the theme. */
  recolour() {
    this.terminal.options.theme = themeOf(this.parent);
  }

  remove() {
    this.watch.disconnect();
    this.terminal.dispose();
  }

  private key(e: KeyboardEvent, leave: () => void): boolean {
    if (e.type !== 'keydown') return true;
    if (e.key === 'Escape' && e.shiftKey) {
      e.preventDefault();
      leave();
      return false;
    }
    // Ctrl-C alone belongs to the shell.
    if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === 'c') {
      e.preventDefault();
      void copy(this.terminal.getSelection());
      return false;
    }
    // The browser pastes, and xterm hears of it.
    return !(e.ctrlKey && e.shiftKey && e.key.toLowerCase() === 'v');
  }
}

/** Copies a text, if there is one and the browser lets us. */
export async function copy(text: string): Promise<void> {
  if (text) await navigator.clipboard?.writeText(text).catch(() => undefined);
}

/** Opens an address that a program in the container has written, after a question. */
function openLink(address: string) {
  const url = safeURL(address);
  if (url && window.confirm(t('Open {{url}}?', { url }))) window.open(url, '_blank', 'noopener,noreferrer');
}
