import { Button, Group, MultiSelect, Popover, Stack } from '@mantine/core';
import { IconFilter } from '@tabler/icons-react';
import type { Node } from '../../api/client';
import { t } from '../../texts';
import { type Facet, type Facets, facets, facetValues, filtersSet } from './grouping';

const titles: Record<Facet, string> = {
  kind: t('Kind'),
  namespace: t('Namespace'),
  sync: t('Sync'),
  health: t('Health'),
};

/** Values that are words and no names. */
const words = new Map([
  ['cluster-wide', t('cluster-wide')],
  ['not in Git', t('not in Git')],
  ['none', t('none')],
]);

/** Filters of the objects of an application, each with the values that there are. */
export function FacetFilter({
  nodes,
  value,
  change,
}: {
  nodes: Node[];
  value: Facets;
  change: (value: Facets) => void;
}) {
  const set = filtersSet(value);
  return (
    <Group gap={4}>
      <Popover position="bottom-start" withArrow trapFocus>
        <Popover.Target>
          <Button size="xs" variant={set > 0 ? 'light' : 'default'} leftSection={<IconFilter size={14} aria-hidden />}>
            {set > 0 ? t('Filters ({{set}})', { set }) : t('Filters')}
          </Button>
        </Popover.Target>
        <Popover.Dropdown>
          <Stack gap="xs" w={260}>
            {facets.map((facet) => (
              <MultiSelect
                key={facet}
                size="xs"
                label={titles[facet]}
                placeholder={value[facet]?.length ? '' : t('all')}
                comboboxProps={{ withinPortal: false }}
                searchable
                clearable
                value={[...(value[facet] ?? [])]}
                data={facetValues(nodes, facet).map(([v, n]) => ({ value: v, label: `${words.get(v) ?? v} (${n})` }))}
                onChange={(chosen) => change({ ...value, [facet]: chosen })}
              />
            ))}
          </Stack>
        </Popover.Dropdown>
      </Popover>
      {set > 0 && (
        <Button size="xs" variant="subtle" onClick={() => change({})}>
          {t('Clear filters')}
        </Button>
      )}
    </Group>
  );
}
