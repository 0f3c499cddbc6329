import { Button, Checkbox, Popover, SegmentedControl, Stack, TextInput } from '@mantine/core';
import { IconAdjustments, IconPlus, IconStar, IconX } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { memo, useState } from 'react';
import { t } from '../../../texts';
import { listQueries } from './api';
import { columns } from './columns';
import type { ListSearch } from './search';
import { type Looks, type Saved, savedViews, sizes, useStored } from './stored';

/** The view that an address shows, as one that can be saved. */
const asSaved = (name: string, search: ListSearch): Saved => ({
  name,
  q: search.q ?? '',
  sort: search.sort ?? '',
  view: search.view ?? '',
});

/** All applications, favourites, and the views that were saved in this browser. */
export function Views({
  search,
  open,
  favourites,
  total,
}: {
  search: ListSearch;
  open: (search: ListSearch) => void;
  favourites: number;
  /** How many applications the open view has. */
  total: number | undefined;
}) {
  const [saved, setSaved] = useStored('views', savedViews);
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState('');
  const everything = useQuery(listQueries.numbers('')).data?.total;
  const current = asSaved('', search);
  const isOpen = (v: Saved) => !search.fav && v.q === current.q && v.sort === current.sort && v.view === current.view;
  const save = () => {
    setSaved([...saved.filter((v) => v.name !== name.trim()), asSaved(name.trim(), search)]);
    setNaming(false);
    setName('');
  };
  const showing = saved.some(isOpen);
  return (
    <nav className="views" aria-label={t('Views')}>
      <button type="button" aria-current={!search.fav && !search.q} onClick={() => open({})}>
        {t('All')} <span className="count">{everything}</span>
      </button>
      {(favourites > 0 || search.fav) && (
        <button type="button" aria-current={search.fav === 'yes'} onClick={() => open({ fav: 'yes' })}>
          <IconStar size={14} aria-hidden /> {t('Favourites')} <span className="count">{favourites}</span>
        </button>
      )}
      {saved.map((v) => (
        <span key={v.name} className="saved">
          <button
            type="button"
            aria-current={isOpen(v)}
            onClick={() => {
              const shape = v.view === 'tiles' || v.view === 'summary' ? { view: v.view as 'tiles' | 'summary' } : {};
              open({ ...(v.q ? { q: v.q } : {}), ...(v.sort ? { sort: v.sort } : {}), ...shape });
            }}
          >
            {v.name} {isOpen(v) && <span className="count">{total}</span>}
          </button>
          <button
            type="button"
            className="forget"
            aria-label={t('Forget the view {{name}}', { name: v.name })}
            onClick={() => setSaved(saved.filter((o) => o !== v))}
          >
            <IconX size={12} aria-hidden />
          </button>
        </span>
      ))}
      {(search.q || search.sort) && !showing && !search.fav && (
        <Popover opened={naming} onChange={setNaming} trapFocus position="bottom-start">
          <Popover.Target>
            <button type="button" onClick={() => setNaming(!naming)}>
              <IconPlus size={14} aria-hidden /> {t('Save view')}
            </button>
          </Popover.Target>
          <Popover.Dropdown>
            <form
              onSubmit={(e) => {
                e.preventDefault();
                if (name.trim()) save();
              }}
            >
              <TextInput
                label={t('Name of the view')}
                maxLength={60}
                value={name}
                onChange={(e) => setName(e.currentTarget.value)}
              />
              <Button type="submit" mt={8} disabled={!name.trim()}>
                {t('Save')}
              </Button>
            </form>
          </Popover.Dropdown>
        </Popover>
      )}
    </nav>
  );
}

/** How the list looks: table, tiles or summary, and what of it. */
export const Shapes = memo(function Shapes({
  view,
  show,
  looks,
  change,
}: {
  view: ListSearch['view'];
  show: (view: ListSearch['view']) => void;
  looks: Looks;
  change: (looks: Looks) => void;
}) {
  return (
    <div className="shapes">
      <SegmentedControl
        aria-label={t('Show as')}
        value={view ?? 'table'}
        data={[
          { value: 'table', label: t('Table') },
          { value: 'tiles', label: t('Tiles') },
          { value: 'summary', label: t('Summary') },
        ]}
        onChange={(v) => show(v === 'tiles' || v === 'summary' ? v : undefined)}
      />
      <Popover position="bottom-end" trapFocus>
        <Popover.Target>
          <Button variant="default" leftSection={<IconAdjustments size={14} aria-hidden />}>
            {t('Columns')}
          </Button>
        </Popover.Target>
        <Popover.Dropdown>
          <Stack gap={6}>
            <Checkbox.Group
              label={t('Columns')}
              value={looks.columns}
              onChange={(columns) => change({ ...looks, columns })}
            >
              <Stack gap={4} mt={4}>
                {columns.map((c) => (
                  <Checkbox key={c.key} size="xs" value={c.key} label={c.title} />
                ))}
              </Stack>
            </Checkbox.Group>
            <Checkbox
              size="xs"
              label={t('Compact rows')}
              checked={looks.compact}
              onChange={(e) => change({ ...looks, compact: e.currentTarget.checked })}
            />
            <SegmentedControl
              aria-label={t('Rows that are read at once')}
              size="xs"
              value={String(looks.size)}
              data={sizes.map(String)}
              onChange={(v) => change({ ...looks, size: Number(v) })}
            />
            <span className="quiet">{t('rows are read at once')}</span>
          </Stack>
        </Popover.Dropdown>
      </Popover>
    </div>
  );
});
