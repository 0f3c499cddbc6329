import { createInstance } from 'i18next';
import type { ReactElement } from 'react';
import { Trans } from 'react-i18next/TransWithoutContext';
import type { ja } from './ja';
import { type Language, languageNow } from './language';

/** A text of the console, in English: what it is looked up by in the catalogues. */
export type Text = keyof typeof ja;

/** The values that a text has places for, written {{name}}. */
type Places<T extends string> = T extends `${string}{{${infer Name}}}${infer Rest}` ? Name | Places<Rest> : never;
type Values<T extends string> = [Places<T>] extends [never] ? [] : [values: Record<Places<T>, string | number>];

/** The language of the page. It stays until the page is loaded anew. */
export const language: Language = languageNow();

const i18n = createInstance({
  lng: language,
  resources: {},
  keySeparator: false,
  nsSeparator: false,
  // React writes values as text; escaping them here would show entities.
  interpolation: { escapeValue: false },
  initAsync: false,
  returnEmptyString: false,
});
void i18n.init();
// English needs no catalogue. Modules that use texts wait for another one.
if (language === 'ja') i18n.addResourceBundle('ja', 'translation', (await import('./ja')).ja);
document.documentElement.lang = language;

/** A text in the language of the page, with values in its places. Values are never read as texts themselves. */
export function t<T extends Text>(text: T, ...[values]: Values<T>): string {
  return i18n.t(text, { replace: values }) as string;
}

const numbers = new Intl.NumberFormat(language);

/** A number as the language of the page writes it. */
export const number = (n: number) => numbers.format(n);

const plurals = new Intl.PluralRules('en');

/** Chooses among English texts by a number, which has the place {{n}}; other languages translate both forms. */
export function count<One extends Text, Other extends Text>(n: number, one: One, other: Other): string {
  return i18n.t(plurals.select(n) === 'one' ? one : other, { replace: { n: number(n) } }) as string;
}

/**
 * A text with elements in it: <b>words</b> in the text gets the element b, and <name/> is an element by itself.
 * Values stand inside elements, so that nothing in them is read as markup.
 */
export function Rich({ text, parts }: { text: Text; parts: Record<string, ReactElement> }) {
  return <Trans i18n={i18n} i18nKey={text as string} components={parts} />;
}
