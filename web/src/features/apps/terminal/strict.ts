import type { Terminal } from '@xterm/xterm';

/**
 * Opens a terminal in an element under a content security policy without
 * unsafe-inline. xterm.js makes style elements when it opens, and writes style
 * attributes for colours of programs; the policy refuses both. Here its rules go
 * to style sheets that scripts make, and its attributes to properties.
 */
export function openStrictly(terminal: Terminal, parent: HTMLElement) {
  const make = document.createElement.bind(document);
  const instead = (tag: string, options?: ElementCreationOptions): HTMLElement =>
    tag.toLowerCase() === 'style' ? holder() : make(tag, options);
  Reflect.set(document, 'createElement', instead);
  try {
    terminal.open(parent);
  } finally {
    // The function of all documents is there again.
    Reflect.deleteProperty(document, 'createElement');
  }
  const rows = at(terminal, '_core', '_renderService', '_renderer', 'value', '_rowFactory');
  if (typeof rows === 'object' && rows !== null) Reflect.set(rows, '_addStyle', addStyle);
}

/** What stands at a path of properties; undefined: nothing. A test notices when xterm.js names them otherwise. */
function at(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>(
    (found, key) => (typeof found === 'object' && found !== null ? Reflect.get(found, key) : undefined),
    value,
  );
}

function addStyle(element: HTMLElement, style: string) {
  element.style.cssText += `${style};`;
}

/** Stands for a style element. What it is given becomes a sheet of the document until it is removed. */
function holder(): HTMLElement {
  const element = document.createElement('template');
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, 'textContent', {
    get: () => '',
    set: (text: string) => sheet.replaceSync(text),
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
