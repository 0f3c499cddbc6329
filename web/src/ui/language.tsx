import { Button, Group, Menu } from '@mantine/core';
import { t } from '../texts';
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

/** The choice of the language, in a menu. */
export function LanguageItems() {
  return (
    <Menu.RadioGroup
      value={chosenLanguage() ?? browser}
      onChange={(value) => chooseLanguage(offered.find((language) => language.name === value)?.name)}
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
