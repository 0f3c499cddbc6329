import { Menu, useMantineColorScheme } from '@mantine/core';
import { t } from '../texts';

const themes = [
  { value: 'light', label: t('Light') },
  { value: 'dark', label: t('Dark') },
  { value: 'auto', label: t('As the system') },
] as const;

/** The choice of the theme, which the browser keeps. */
export function ThemeItems() {
  const { colorScheme, setColorScheme } = useMantineColorScheme({
    // Stopping transitions for a moment takes a style element, which the content security policy refuses.
    keepTransitions: true,
  });
  return (
    <Menu.RadioGroup
      value={colorScheme}
      onChange={(value) => setColorScheme(themes.find((theme) => theme.value === value)?.value ?? 'auto')}
    >
      <Menu.Label>{t('Theme')}</Menu.Label>
      {themes.map((theme) => (
        <Menu.RadioItem key={theme.value} value={theme.value}>
          {theme.label}
        </Menu.RadioItem>
      ))}
    </Menu.RadioGroup>
  );
}
