import { Button, Checkbox, CopyButton, Group, Modal, Stack, Tabs, Text, TextInput, Title } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { ActionButton } from './action-button';
import './page.css';
import { t } from '../texts';
import { Problem } from './states';
import { useChosenInSight } from './tabs';

/** A tab of a page; its key is what the address has. */
export interface Tab {
  key: string;
  label: string;
  count?: number | undefined;
}

/** The frame of a page: what it is, its state and actions, facts, tabs and what the open tab shows. */
export function Page(props: {
  title: string;
  about?: ReactNode;
  actions?: ReactNode;
  facts?: ReactNode;
  tabs?: readonly Tab[];
  tab?: string;
  open?: (tab: string) => void;
  /** The body has a column at its side, and brings its own spaces. */
  two?: boolean;
  children: ReactNode;
}) {
  const { title, about, actions, facts, tabs, tab, open, two, children } = props;
  const list = useChosenInSight(tab ?? '', ...(tabs ?? []).map((tab) => tab.count));
  return (
    <div className="page">
      <div className="page-head">
        <div className="line">
          <Title order={2}>{title}</Title>
          {about && <div className="about">{about}</div>}
          {actions && <div className="actions">{actions}</div>}
        </div>
        {facts && <div className="facts">{facts}</div>}
        {tabs && (
          <Tabs value={tab ?? tabs[0]?.key ?? ''} onChange={(next) => next && open?.(next)}>
            <Tabs.List ref={list} aria-label={t('Parts of {{title}}', { title })}>
              {tabs.map((tab) => (
                <Tabs.Tab key={tab.key} value={tab.key} aria-controls="page-body" id={`tab-${tab.key}`}>
                  {tab.label}
                  {tab.count !== undefined && (
                    <Text span c="dimmed" ml={6} size="sm">
                      {tab.count}
                    </Text>
                  )}
                </Tabs.Tab>
              ))}
            </Tabs.List>
          </Tabs>
        )}
      </div>
      <div
        className={two ? 'page-body two' : 'page-body'}
        id="page-body"
        {...(tabs ? { role: 'tabpanel', 'aria-labelledby': `tab-${tab ?? tabs[0]?.key ?? ''}` } : {})}
      >
        {children}
      </div>
    </div>
  );
}

/** One fact in the head of a page, with a smaller note below. */
export function Fact({
  label,
  children,
  note,
  title,
}: {
  label: string;
  children: ReactNode;
  note?: ReactNode;
  title?: string;
}) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fact is no set of form fields
    <div role="group" className="fact" aria-label={label} {...(title ? { title } : {})}>
      <span className="label">{label}</span>
      {children}
      {note && <span className="note">{note}</span>}
    </div>
  );
}

/** Labels of an object, as key=value. */
export function Labels({ labels }: { labels: Record<string, string> | undefined }) {
  const all = Object.entries(labels ?? {});
  if (all.length === 0) return null;
  return (
    <span className="chips">
      {all.map(([key, value]) => (
        <span className="chip" key={key} title={`${key}=${value}`}>
          {key}={value}
        </span>
      ))}
    </span>
  );
}

/** A title inside of a page, with a number and something at its end. */
export function SectionTitle({
  children,
  count,
  right,
}: {
  children: ReactNode;
  count?: ReactNode;
  right?: ReactNode;
}) {
  return (
    <div className="section-title">
      <Title order={3}>{children}</Title>
      {count !== undefined && <span className="count">{count}</span>}
      {right && <span className="right">{right}</span>}
    </div>
  );
}

/** A command with a button that copies it. */
export function Command({ text, label = t('Copy') }: { text: string; label?: string }) {
  return (
    <div className="command">
      <pre>{text}</pre>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Button variant="default" size="compact-sm" onClick={copy}>
            {copied ? t('Copied') : label}
          </Button>
        )}
      </CopyButton>
    </div>
  );
}

/** A secret that is shown this once. */
export function Once({ secret, what, close }: { secret: string; what: string; close: () => void }) {
  return (
    <Modal opened onClose={close} title={what} size="lg">
      <Stack>
        <Text size="sm">{t('Copy it now: it is shown this once, and stored as a hash.')}</Text>
        <Command text={secret} />
        <Group justify="flex-end">
          <Button onClick={close}>{t('Done')}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/**
 * Asks before something that is hard to take back. It lists what happens. With
 * a name to type, the button waits until it is typed.
 */
export function Confirm(props: {
  title: string;
  action: string;
  effects?: readonly string[] | undefined;
  typed?: string;
  sure?: string;
  denied: string;
  error: unknown;
  pending: boolean;
  danger?: boolean;
  run: () => void;
  close: () => void;
  children?: ReactNode;
}) {
  const { title, action, effects, typed, sure, denied, error, pending, danger = true, run, close, children } = props;
  const [name, setName] = useState('');
  const [checked, setChecked] = useState(false);
  const ready = (!typed || name === typed) && (!sure || checked);
  return (
    <Modal opened onClose={close} title={title}>
      <Stack>
        {error != null && <Problem error={error} />}
        {effects && effects.length > 0 && (
          <ul className="effects" aria-label={t('What happens')}>
            {effects.map((e) => (
              <li key={e}>{e}</li>
            ))}
          </ul>
        )}
        {children}
        {sure && <Checkbox label={sure} checked={checked} onChange={(e) => setChecked(e.currentTarget.checked)} />}
        {typed && (
          <TextInput
            label={t('Type {{typed}} to go on', { typed })}
            autoComplete="off"
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
          />
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t('Cancel')}
          </Button>
          <ActionButton
            why={denied}
            {...(danger ? { color: 'red', variant: 'outline' } : {})}
            disabled={!ready}
            loading={pending}
            onClick={run}
          >
            {action}
          </ActionButton>
        </Group>
      </Stack>
    </Modal>
  );
}
