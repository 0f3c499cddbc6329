import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { cleanup, render } from '@testing-library/react';
import ts from 'typescript';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ja } from './ja';

const source = join(process.cwd(), 'src');
const files = readdirSync(source, { recursive: true, encoding: 'utf8' })
  .filter((f) => /\.tsx?$/.test(f) && !/\.test\.|\.gen\.|^texts/.test(f))
  .map((f) => ts.createSourceFile(f, readFileSync(join(source, f), 'utf8'), ts.ScriptTarget.Latest, true));

/** Walks all nodes of a file. */
function each(node: ts.Node, see: (node: ts.Node) => void) {
  see(node);
  ts.forEachChild(node, (child) => each(child, see));
}

const at = (node: ts.Node) => {
  const file = node.getSourceFile();
  return `${file.fileName}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}`;
};

/** What readers see or hear, by the names of attributes and properties. */
const shown = new Set([
  'aria-label',
  'aria-description',
  'alt',
  'description',
  'hint',
  'label',
  'nothingFoundMessage',
  'title',
  'why',
]); // prettier-ignore

/** What has no other form in any language: commands, file names, examples. */
const asWritten = new Set(['Capstan', 'Git', 'Helm', 'Kustomize', 'Jsonnet', 'YAML', 'URL', 'SSH', 'TLS', 'OCI']);

/** The English texts that a file asks for. */
function asked(file: ts.SourceFile): { text: string; node: ts.Node }[] {
  const found: { text: string; node: ts.Node }[] = [];
  const keep = (node: ts.Node | undefined) => node && ts.isStringLiteral(node) && found.push({ text: node.text, node });
  each(file, (node) => {
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression)) {
      if (node.expression.text === 't') keep(node.arguments[0]);
      if (node.expression.text === 'count') node.arguments.slice(1).forEach(keep);
    }
    if (ts.isJsxSelfClosingElement(node) && node.tagName.getText() === 'Rich')
      for (const a of node.attributes.properties)
        if (ts.isJsxAttribute(a) && a.name.getText() === 'text') keep(a.initializer);
  });
  return found;
}

test('UX-A11-5 no text of the console stands outside the catalogues', () => {
  const found: string[] = [];
  for (const file of files)
    each(file, (node) => {
      const tag = node.parent && ts.isJsxElement(node.parent) ? node.parent.openingElement.tagName.getText() : '';
      if (ts.isJsxText(node) && /[A-Za-z]{2}/.test(node.text) && !['code', 'pre', 'kbd'].includes(tag))
        if (!asWritten.has(node.text.trim())) found.push(`${at(node)} ${node.text.trim()}`);
      const named =
        (ts.isJsxAttribute(node) || ts.isPropertyAssignment(node)) &&
        shown.has(node.name.getText().replaceAll("'", ''));
      if (named && node.initializer && ts.isStringLiteral(node.initializer))
        if (/[A-Za-z]{2}/.test(node.initializer.text) && !asWritten.has(node.initializer.text))
          found.push(`${at(node)} ${node.initializer.text}`);
    });
  expect(found).toEqual([]);
});

test('UX-A11-5 the Japanese catalogue has every text that is asked for, and no other', () => {
  const texts = new Set(files.flatMap(asked).map((a) => a.text));
  const catalogue: Record<string, string> = ja;
  expect([...texts].filter((text) => !catalogue[text])).toEqual([]);
  expect(Object.keys(catalogue).filter((text) => !texts.has(text))).toEqual([]);
  expect(texts.size).toBeGreaterThan(1_000);
});

test('UX-A11-5 each text stands in one catalogue, and translations keep its places and elements', () => {
  const folder = join(source, 'texts/ja');
  const owners = new Map<string, string[]>();
  for (const name of readdirSync(folder).filter((f) => f !== 'index.ts')) {
    const file = ts.createSourceFile(name, readFileSync(join(folder, name), 'utf8'), ts.ScriptTarget.Latest, true);
    each(file, (node) => {
      if (!ts.isPropertyAssignment(node) || !ts.isStringLiteral(node.initializer)) return;
      const text = ts.isIdentifier(node.name) || ts.isStringLiteral(node.name) ? node.name.text : '';
      owners.set(text, [...(owners.get(text) ?? []), name]);
    });
  }
  expect([...owners].filter(([, names]) => names.length > 1)).toEqual([]);
  const marks = (text: string) => (text.match(/\{\{\w+\}\}|<\/?\w+\/?>/g) ?? []).toSorted().join(' ');
  expect(Object.entries(ja).filter(([text, translated]) => marks(text) !== marks(translated))).toEqual([]);
});

beforeEach(() => {
  vi.resetModules();
  localStorage.clear();
});
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

test('UX-A11-5 no style depends on a text', () => {
  const named = readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter((f) => f.endsWith('.css'))
    .filter((f) =>
      /\[(aria-label|aria-description|title|alt|placeholder)[~^$*|]?=/.test(readFileSync(join(source, f), 'utf8')),
    );
  expect(named).toEqual([]);
});

test('UX-A11-5 the language is the one that is chosen, or else the first of the browser that there is', async () => {
  const { keepLanguage, languageNow } = await import('./language');
  const browser = vi.spyOn(navigator, 'languages', 'get');
  browser.mockReturnValue(['fr-FR', 'ja-JP', 'en']);
  expect(languageNow()).toBe('ja');
  browser.mockReturnValue(['fr-FR', 'constructor']);
  expect(languageNow()).toBe('en');
  keepLanguage('ja');
  expect(languageNow()).toBe('ja');
  keepLanguage(undefined);
  expect(languageNow()).toBe('en');
});

test('UX-A11-5 values are written as they are, in both languages', async () => {
  for (const language of ['en', 'ja'] as const) {
    vi.resetModules();
    localStorage.setItem('capstan-language', language);
    const { Rich, t } = await import('.');
    expect(document.documentElement.lang).toBe(language);
    const name = '<b>x</b> {{name}} $t(Cancel) &amp;';
    expect(t('Select {{name}}', { name })).toContain(name);
    expect(t('Cancel')).toBe(language === 'ja' ? 'キャンセル' : 'Cancel');
    const { container } = render(
      <Rich
        text="You are signed in as <user/> of <tenant/>."
        parts={{ user: <b>{name}</b>, tenant: <b>{'</b>'}</b> }}
      />,
    );
    expect([...container.querySelectorAll('b')].map((b) => b.textContent)).toEqual(
      language === 'ja' ? ['</b>', name] : [name, '</b>'],
    );
    cleanup();
  }
});
