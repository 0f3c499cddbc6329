import { ActionIcon, CopyButton, Popover, Text, TextInput, Tooltip } from '@mantine/core';
import { IconHelpCircle, IconRegex, IconSearch, IconTerminal2, IconX } from '@tabler/icons-react';
import { memo, useEffect, useRef, useState } from 'react';
import { Rich, t } from '../../../texts';
import { byPattern, fields, patternToggled } from './terms';

/** How long a pause in typing is, after which the list is read although what was asked before has not come yet. */
const pause = 120;

/**
 * The query of the list as text. `/` leads to it from anywhere on the page. What is typed is asked for at
 * once; what is typed while the hub is asked waits for its answer, or for a pause.
 */
export const QueryBar = memo(function QueryBar({
  query,
  change,
  busy,
  wrong,
}: {
  query: string;
  change: (query: string) => void;
  /** The list of the query is not there yet. */
  busy: boolean;
  /** What the hub says is wrong with it. */
  wrong: string | undefined;
}) {
  const [text, setText] = useState(query);
  const input = useRef<HTMLInputElement>(null);
  // The query, and after it those that were told and have not become the query yet.
  const told = useRef([query]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const still = () => {
    clearTimeout(timer.current);
    timer.current = undefined;
  };
  const tell = (next: string) => {
    still();
    const trimmed = next.trim();
    if (told.current.at(-1) !== trimmed) told.current.push(trimmed);
    change(trimmed);
  };
  useEffect(() => {
    const at = told.current.indexOf(query);
    if (at >= 0) {
      told.current = told.current.slice(at);
      return;
    }
    told.current = [query];
    still();
    setText(query);
  }, [query]);
  useEffect(() => still, []);
  const idle = () => !busy && told.current.length === 1;
  useEffect(() => {
    if (timer.current !== undefined && idle()) tell(text);
  }, [busy, query]);
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
  const type = (next: string) => {
    setText(next);
    still();
    if (idle()) tell(next);
    else timer.current = setTimeout(() => tell(next), pause);
  };
  // Who follows a link leaves the field first. The query is told at once then:
  // later it would take the place of the page that is being loaded.
  const leave = () => {
    if (timer.current !== undefined) tell(text);
  };
  const set = (next: string) => {
    setText(next);
    tell(next);
  };
  const expression = byPattern(text);
  return (
    <div className="query-bar">
      <TextInput
        ref={input}
        aria-label={t('Search applications')}
        placeholder={t('Part of a name, health:degraded, project:shop, -cluster:prod, label:team=a')}
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
        <ActionIcon variant="subtle" color="gray" aria-label={t('Clear the filter')} onClick={() => set('')}>
          <IconX size={16} aria-hidden />
        </ActionIcon>
      )}
      <Tooltip label={t('Look for the name by a regular expression')}>
        <ActionIcon
          variant={expression ? 'light' : 'subtle'}
          color={expression ? 'teal' : 'gray'}
          aria-label={t('Regular expression')}
          aria-pressed={expression}
          onClick={() => set(patternToggled(text))}
        >
          <IconRegex size={16} aria-hidden />
        </ActionIcon>
      </Tooltip>
      <CopyButton value={`capstan app list${query ? ` --query '${query.replaceAll("'", "'\\''")}'` : ''}`}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? t('Copied') : t('Copy as a command')}>
            <ActionIcon variant="subtle" color="gray" aria-label={t('Copy as a command')} onClick={copy}>
              <IconTerminal2 size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
      <Popover position="bottom-end" width={420} withinPortal>
        <Popover.Target>
          <ActionIcon variant="subtle" color="gray" aria-label={t('How to filter')}>
            <IconHelpCircle size={16} aria-hidden />
          </ActionIcon>
        </Popover.Target>
        <Popover.Dropdown className="query-help">
          <Text size="sm">
            <Rich
              text="Words are parts of the name. <code>field:value</code> asks for a value, with commas for any of several; <code>-</code> before it excludes, <code>*</code> stands for any text, and <code>name~^web-</code> is a regular expression. Different fields must hold together."
              parts={{ code: <code /> }}
            />
          </Text>
          <Text size="sm" mt={8}>
            {t('Fields: {{names}}.', { names: fields.join(', ') })}
          </Text>
        </Popover.Dropdown>
      </Popover>
    </div>
  );
});
