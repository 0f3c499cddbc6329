import { ActionIcon, CopyButton, Popover, Text, TextInput, Tooltip } from '@mantine/core';
import { IconHelpCircle, IconRegex, IconSearch, IconTerminal2, IconX } from '@tabler/icons-react';
import { useEffect, useRef, useState } from 'react';
import { byPattern, fields, patternToggled } from './terms';

/** How long a pause in typing is, after which the list is read. */
const pause = 120;

/** The query of the list as text. `/` leads to it from anywhere on the page. */
export function QueryBar({
  query,
  change,
  wrong,
}: {
  query: string;
  change: (query: string) => void;
  /** What the hub says is wrong with it. */
  wrong: string | undefined;
}) {
  const [text, setText] = useState(query);
  const input = useRef<HTMLInputElement>(null);
  const told = useRef(query);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (query === told.current) return;
    told.current = query;
    clearTimeout(timer.current);
    timer.current = undefined;
    setText(query);
  }, [query]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    const focus = (e: KeyboardEvent) => {
      const typing = e.target instanceof HTMLElement && e.target.closest('input, textarea, [contenteditable]');
      if (e.key !== '/' || typing || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    window.addEventListener('keydown', focus);
    return () => window.removeEventListener('keydown', focus);
  }, []);
  const tell = (next: string) => {
    told.current = next.trim();
    change(told.current);
  };
  const type = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = undefined;
      tell(next);
    }, pause);
  };
  // Who follows a link leaves the field first. The query is told at once then:
  // later it would take the place of the page that is being loaded.
  const leave = () => {
    if (timer.current === undefined) return;
    clearTimeout(timer.current);
    timer.current = undefined;
    tell(text);
  };
  const set = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = undefined;
    tell(next);
  };
  const expression = byPattern(text);
  return (
    <div className="query-bar">
      <TextInput
        ref={input}
        aria-label="Search applications"
        placeholder={'Part of a name, health:degraded, project:shop, -cluster:prod, label:team=a'}
        spellCheck={false}
        autoComplete="off"
        leftSection={<IconSearch size={16} aria-hidden />}
        value={text}
        error={wrong}
        onChange={(e) => type(e.currentTarget.value)}
        onBlur={leave}
        onKeyDown={(e) => {
          if (e.key === 'Enter') set(text);
          if (e.key === 'Escape') set('');
        }}
      />
      {text !== '' && (
        <ActionIcon variant="subtle" color="gray" aria-label="Clear the filter" onClick={() => set('')}>
          <IconX size={16} aria-hidden />
        </ActionIcon>
      )}
      <Tooltip label="Look for the name by a regular expression">
        <ActionIcon
          variant={expression ? 'light' : 'subtle'}
          color={expression ? 'teal' : 'gray'}
          aria-label="Regular expression"
          aria-pressed={expression}
          onClick={() => set(patternToggled(text))}
        >
          <IconRegex size={16} aria-hidden />
        </ActionIcon>
      </Tooltip>
      <CopyButton value={`capstan app list${query ? ` --query '${query.replaceAll("'", "'\\''")}'` : ''}`}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? 'Copied' : 'Copy as a command'}>
            <ActionIcon variant="subtle" color="gray" aria-label="Copy as a command" onClick={copy}>
              <IconTerminal2 size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
      <Popover position="bottom-end" width={420} withinPortal>
        <Popover.Target>
          <ActionIcon variant="subtle" color="gray" aria-label="How to filter">
            <IconHelpCircle size={16} aria-hidden />
          </ActionIcon>
        </Popover.Target>
        <Popover.Dropdown className="query-help">
          <Text size="sm">
            Words are parts of the name. <code>field:value</code> asks for a value, with commas for any of several;{' '}
            <code>-</code> before it excludes, <code>*</code> stands for any text, and <code>name~^web-</code> is a
            regular expression. Different fields must hold together.
          </Text>
          <Text size="sm" mt={8}>
            Fields: {fields.join(', ')}.
          </Text>
        </Popover.Dropdown>
      </Popover>
    </div>
  );
}
