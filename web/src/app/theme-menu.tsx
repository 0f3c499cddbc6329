import { Menu, useMantineColorScheme } from '@mantine/core';

const themes = [
  { value: 'light', label: 'Light' },
  { value: 'dark', label: 'Dark' },
  { value: 'auto', label: 'As the system' },
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
      onChange={(value) => setColorScheme(themes.find((t) => t.value === value)?.value ?? 'auto')}
    >
      <Menu.Label>Theme</Menu.Label>
      {themes.map((t) => (
        <Menu.RadioItem key={t.value} value={t.value}>
          {t.label}
        </Menu.RadioItem>
      ))}
    </Menu.RadioGroup>
  );
}
