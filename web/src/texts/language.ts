/** The languages of the console, each by its own name. */
export const languages = { en: 'English', ja: '日本語' } as const;

export type Language = keyof typeof languages;

const isLanguage = (name: string): name is Language => Object.hasOwn(languages, name);

const kept = 'capstan-language';

/** What somebody has chosen in this browser; undefined: the browser's languages decide. */
export function chosenLanguage(): Language | undefined {
  const name = localStorage.getItem(kept) ?? '';
  return isLanguage(name) ? name : undefined;
}

/** Keeps a choice for the pages that are loaded from now on. */
export function keepLanguage(name: Language | undefined) {
  if (name) localStorage.setItem(kept, name);
  else localStorage.removeItem(kept);
}

/** The language that is chosen, or else the first of the browser's that the console has. */
export function languageNow(): Language {
  const wanted = navigator.languages.map((l) => l.split('-')[0] ?? '');
  return chosenLanguage() ?? wanted.find(isLanguage) ?? 'en';
}
