import { cloneElement, type ReactElement, type ReactNode } from 'react';
import type { ja } from './ja';
import { type Language, languageNow } from './language';

/** A text of the console, in English: what it is looked up by in the catalogues. */
export type Text = keyof typeof ja;

/** The values that a text has places for, written {{name}}. */
type Places<T extends string> = T extends `${string}{{${infer Name}}}${infer Rest}` ? Name | Places<Rest> : never;
type Values<T extends string> = [Places<T>] extends [never] ? [] : [values: Record<Places<T>, string | number>];

/** The language of the page. It stays until the page is loaded anew. */
export const language: Language = languageNow();

// English needs no catalogue. Modules that use texts wait for another one.
const catalogue: Readonly<Record<string, string>> = language === 'ja' ? (await import('./ja')).ja : {};
document.documentElement.lang = language;

const lookUp = (text: string) => catalogue[text] || text;

/** Puts values in the places of a text. What they contain is never read as a place. */
function fill(text: string, values: Readonly<Record<string, string | number>> = {}): string {
  return lookUp(text).replace(/\{\{(\w+)\}\}/g, (place, name: string) => String(values[name] ?? place));
}

/** A text in the language of the page, with values in its places. Values are never read as texts themselves. */
export function t<T extends Text>(text: T, ...[values]: Values<T>): string {
  return fill(text, values);
}

const numbers = new Intl.NumberFormat(language);

/** A number as the language of the page writes it. */
export const number = (n: number) => numbers.format(n);

const plurals = new Intl.PluralRules('en');

/** Chooses among English texts by a number, which has the place {{n}}; other languages translate both forms. */
export function count<One extends Text, Other extends Text>(n: number, one: One, other: Other): string {
  return fill(plurals.select(n) === 'one' ? one : other, { n: number(n) });
}

/**
 * A text with elements in it: <b>words</b> in the text gets the element b, and <name/> is an element by itself.
 * Values stand inside elements, so that nothing in them is read as markup.
 */
export function Rich({ text, parts }: { text: Text; parts: Readonly<Record<string, ReactElement>> }) {
  return nodes(lookUp(text), parts);
}

/** The text with its elements; one that is no part stays text. */
function nodes(text: string, parts: Readonly<Record<string, ReactElement>>): ReactNode[] {
  const found: ReactNode[] = [];
  let end = 0;
  for (const m of text.matchAll(/<(\w+)\/>|<(\w+)>(.*?)<\/\2>/g)) {
    const part = parts[m[1] ?? m[2] ?? ''];
    if (!part) continue;
    const inner = m[3] === undefined ? [] : nodes(m[3], parts);
    found.push(text.slice(end, m.index), cloneElement(part, { key: m.index }, ...inner));
    end = m.index + m[0].length;
  }
  return [...found, text.slice(end)];
}
