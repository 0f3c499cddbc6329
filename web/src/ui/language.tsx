import { Button, Group, Menu } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useEffect } from 'react';
import { languageMutation } from '../api/session';
import { language, t } from '../texts';
import { chosenLanguage, keepLanguage, type Language, languages } from '../texts/language';

/** The languages in the order of the choice, each by its own name. */
const offered = Object.entries(languages).map(([name, label]) => ({ name: name as Language, label }));

/** The value of the choice that leaves the language to the browser. */
const browser = 'browser';

/** Takes a language, or that of the browser without one. Texts are looked up once, so the page is loaded anew. */
export function chooseLanguage(name: Language | undefined) {
  keepLanguage(name);
  window.location.reload();
}

/** Reads the page in the language of the account, if the account has one: somebody may have chosen it in another browser. */
export function useAccountLanguage(name: Language | '' | undefined) {
  useEffect(() => {
    if (!name || name === language) return;
    keepLanguage(name);
    // A browser that keeps nothing would load the page again and again.
    if (chosenLanguage() === name) window.location.reload();
  }, [name]);
}

/** The choice of the language, in a menu. The account keeps it. */
export function LanguageItems() {
  const keep = useMutation(languageMutation);
  return (
    <Menu.RadioGroup
      value={chosenLanguage() ?? browser}
      onChange={(value) => {
        const name = offered.find((o) => o.name === value)?.name;
        keep.mutate(name ?? '', { onSuccess: () => chooseLanguage(name) });
      }}
    >
      <Menu.Label>{t('Language')}</Menu.Label>
      {offered.map(({ name, label }) => (
        <Menu.RadioItem key={name} value={name} lang={name}>
          {label}
        </Menu.RadioItem>
      ))}
      <Menu.RadioItem value={browser}>{t('As the browser')}</Menu.RadioItem>
    </Menu.RadioGroup>
  );
}

/** The choice of the language, small, at the foot of a page that has no menu. */
export function LanguageChoice() {
  const chosen = chosenLanguage();
  const look = { variant: 'subtle', color: 'gray', size: 'compact-sm' } as const;
  return (
    <Group gap={4} mt="lg" justify="center" role="group" aria-label={t('Language')}>
      {offered.map(({ name, label }) => (
        <Button key={name} {...look} lang={name} aria-pressed={chosen === name} onClick={() => chooseLanguage(name)}>
          {label}
        </Button>
      ))}
      <Button {...look} aria-pressed={!chosen} onClick={() => chooseLanguage(undefined)}>
        {t('As the browser')}
      </Button>
    </Group>
  );
}
