import { ActionIcon, Kbd, Modal, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useId, useState } from 'react';
import { may, meQuery } from '../api/session';
import { listQueries } from '../features/apps/list/api';
import { HealthCell } from '../features/apps/list/columns';
import { partOfName } from '../features/apps/list/terms';
import { clusterQueries } from '../features/clusters/api';
import { projectQueries } from '../features/projects/api';
import { number, t } from '../texts';
import './palette.css';

/** One thing to go to. */
interface Goal {
  key: string;
  kind: string;
  title: string;
  detail?: string | undefined;
  mark?: React.ReactNode;
  go: () => unknown;
}

/** A place of the console, as the navigation has it. */
export interface Place {
  to: string;
  label: string;
}

/** How many applications are shown. */
const most = 8;

/** What the palette opens with, as keys are labelled. */
const shortcut = 'Ctrl K';

/** How long a pause in typing is, after which the hub is asked. */
const pause = 120;

/** Opens the palette by Ctrl-K or ⌘K from anywhere, and by its button. */
export function Palette({ places }: { places: readonly Place[] }) {
  const [opened, setOpened] = useState(false);
  useEffect(() => {
    const open = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() !== 'k' || !(e.ctrlKey || e.metaKey) || e.altKey || e.shiftKey) return;
      e.preventDefault();
      setOpened((was) => !was);
    };
    window.addEventListener('keydown', open);
    return () => window.removeEventListener('keydown', open);
  }, []);
  return (
    <>
      <button type="button" className="palette-button" onClick={() => setOpened(true)}>
        <IconSearch size={14} aria-hidden />
        <span>{t('Go to or find')}</span>
        <Kbd size="xs">{shortcut}</Kbd>
      </button>
      <ActionIcon
        variant="subtle"
        color="gray"
        className="palette-icon"
        aria-label={t('Go to or find')}
        onClick={() => setOpened(true)}
      >
        <IconSearch size={18} aria-hidden />
      </ActionIcon>
      {opened && <Finder places={places} close={() => setOpened(false)} />}
    </>
  );
}

/** Takes the focus at once: what is typed next is meant for it. */
const focused = (input: HTMLInputElement | null) => input?.focus();

function Finder({ places, close }: { places: readonly Place[]; close: () => void }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const list = useId();
  const { goals, asking } = useGoals(text, places, close);
  const active = Math.min(at, goals.length - 1);
  useEffect(() => {
    document.getElementById(`${list}-${active}`)?.scrollIntoView({ block: 'nearest' });
  }, [list, active]);
  return (
    <Modal
      opened
      onClose={close}
      withCloseButton={false}
      size={600}
      yOffset={80}
      title={t('Go to or find')}
      classNames={{ header: 'palette-head' }}
      padding={0}
    >
      <div className="palette">
        <TextInput
          ref={focused}
          data-autofocus
          role="combobox"
          aria-label={t('Go to or find')}
          aria-expanded
          aria-controls={list}
          aria-activedescendant={goals.length > 0 ? `${list}-${active}` : undefined}
          placeholder={t("A page, a cluster, a project, or a part of an application's name")}
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={(e) => {
            setText(e.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={(e) => {
            if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
              e.preventDefault();
              const n = Math.max(1, goals.length);
              setAt((active + (e.key === 'ArrowDown' ? 1 : n - 1)) % n);
            }
            if (e.key === 'Enter') goals[active]?.go();
          }}
        />
        <div id={list} role="listbox" aria-label={t('What was found')} aria-busy={asking}>
          {goals.map((g, i) => (
            // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the text, which names the active option
            // biome-ignore lint/a11y/useKeyWithClickEvents: Enter in the text opens the active option
            <div
              key={g.key}
              id={`${list}-${i}`}
              role="option"
              aria-selected={i === active}
              onMouseMove={() => setAt(i)}
              onClick={() => g.go()}
            >
              <span className="kind">{g.kind}</span>
              <span className="title">{g.title}</span>
              {g.detail && <span className="detail">{g.detail}</span>}
              {g.mark}
            </div>
          ))}
        </div>
        {goals.length === 0 && !asking && <p role="status">{t('Nothing is called like that.')}</p>}
      </div>
    </Modal>
  );
}

/** What a text leads to. Applications are looked for by the hub. */
function useGoals(text: string, places: readonly Place[], close: () => void): { goals: Goal[]; asking: boolean } {
  const navigate = useNavigate();
  const me = useQuery(meQuery).data;
  const words = text.trim();
  const [settled] = useDebouncedValue(words, pause);
  const query = settled.split(/\s+/).filter(Boolean).map(partOfName).join(' ');
  const apps = useQuery({
    ...listQueries.page({ query, sort: 'name', size: most }, 0),
    enabled: query !== '',
    placeholderData: (held) => held,
  });
  const clusters = useQuery({ ...clusterQueries.list(), enabled: may(me, 'clusters', 'get') }).data?.items ?? [];
  const projects = useQuery({ ...projectQueries.list(), enabled: may(me, 'projects', 'get') }).data?.items ?? [];
  const fits = (name: string) => words === '' || name.toLowerCase().includes(words.toLowerCase());
  const to = (kind: string, title: string, go: () => unknown, more: Partial<Goal> = {}): Goal => ({
    key: `${kind} ${title} ${more.detail ?? ''}`,
    kind,
    title,
    go: () => {
      close();
      return go();
    },
    ...more,
  });
  const goals = places.filter((p) => fits(p.label)).map((p) => to(t('Page'), p.label, () => navigate({ to: p.to })));
  if (words === '') return { goals, asking: false };
  const found = (apps.data?.rows ?? []).map((row) =>
    to(
      t('Application'),
      row.name,
      () => navigate({ to: '/applications/$namespace/$name', params: { namespace: row.namespace, name: row.name } }),
      { detail: [row.project, row.cluster].filter(Boolean).join(' / '), mark: <HealthCell row={row} /> },
    ),
  );
  const total = apps.data?.total ?? 0;
  if (total > 0) {
    found.push(
      to(t('List'), t('All {{n}} that match', { n: number(total) }), () =>
        navigate({ to: '/applications', search: { q: query } }),
      ),
    );
  }
  const named = <T,>(all: readonly T[], name: (one: T) => string) => all.filter((one) => fits(name(one))).slice(0, 5);
  goals.push(
    ...found,
    ...named(clusters, (c) => c.name).map((c) =>
      to(t('Cluster'), c.name, () => navigate({ to: '/clusters/$name', params: { name: c.name } })),
    ),
    ...named(projects, (p) => p.metadata.name).map((p) =>
      to(t('Project'), p.metadata.name, () => navigate({ to: '/projects/$name', params: { name: p.metadata.name } })),
    ),
  );
  return { goals, asking: apps.isFetching || settled !== words };
}
