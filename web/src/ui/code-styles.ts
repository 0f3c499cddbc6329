import { StyleModule } from 'style-mod';

/*
 * CodeMirror writes its layout into style elements, which the content security
 * policy refuses. Style sheets that are made by a script are none of these.
 */
const sheets = new WeakMap<DocumentOrShadowRoot, { sheet: CSSStyleSheet; modules: StyleModule[] }>();
const elements = StyleModule.mount;

StyleModule.mount = (root, given, options) => {
  if (!('adoptedStyleSheets' in root)) {
    elements(root, given, options);
    return;
  }
  const held = sheets.get(root) ?? { sheet: new CSSStyleSheet(), modules: [] };
  const wanted = Array.isArray(given) ? given : [given];
  if (!sheets.has(root)) {
    sheets.set(root, held);
    root.adoptedStyleSheets = [...root.adoptedStyleSheets, held.sheet];
  }
  const tail = held.modules.slice(-wanted.length);
  if (tail.length === wanted.length && wanted.every((m, i) => m === tail[i])) return;
  // Later modules take precedence over earlier ones.
  held.modules = [...held.modules.filter((m) => !wanted.includes(m)), ...wanted];
  held.sheet.replaceSync(held.modules.map((m) => m.getRules()).join('\n'));
};
