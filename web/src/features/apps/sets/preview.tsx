import { Alert, Button, SegmentedControl } from '@mantine/core';
import { useState } from 'react';
import { stringify } from 'yaml';
import { sentence } from '../../../api/errors';
import { count, t } from '../../../texts';
import { ComparisonView } from '../diff/comparison';
import { yamlOf } from '../object/yaml';
import type { Previewed, SetPreview } from './api';
import { type Shown, shownItems } from './model';
import '../edit/edit.css';

/** So many applications are listed at first, and more with each press. */
const portion = 100;

const signs: Record<Previewed['action'], string> = { create: '+', update: '≠', delete: '−', unchanged: '=' };
const words: Record<Previewed['action'], string> = {
  create: t('create'),
  update: t('change'),
  delete: t('delete'),
  unchanged: t('unchanged'),
};

/** Which applications a set would make, change and delete. Nothing of it is stored. */
export function Preview({ preview }: { preview: SetPreview }) {
  const [shown, setShown] = useState<Shown>('all');
  const [most, setMost] = useState(portion);
  const { counts, items, warnings } = preview;
  const found = shownItems(items, shown);
  const choices: [Shown, string][] = [
    ['all', t('All {{n}}', { n: items.length })],
    ['create', t('Create {{n}}', { n: counts.create })],
    ['update', t('Change {{n}}', { n: counts.update })],
    ['delete', t('Delete {{n}}', { n: counts.delete })],
    ['unchanged', t('Unchanged {{n}}', { n: counts.unchanged })],
    ['problems', t('Problems {{n}}', { n: counts.problems })],
  ];
  return (
    <section className="edit-preview set-preview" aria-label={t('Preview')}>
      <header>
        <b role="status">
          {t('{{created}} created, {{changed}} changed, {{deleted}} deleted', {
            created: counts.create,
            changed: counts.update,
            deleted: counts.delete,
          })}
        </b>
        <span className="quiet">{count(items.length, '{{n}} application', '{{n}} applications')}</span>
      </header>
      {counts.held > 0 && (
        <Alert color="yellow" role="status">
          {count(
            counts.held,
            '{{n}} application would not be deleted before somebody consents.',
            '{{n}} applications would not be deleted before somebody consents.',
          )}
        </Alert>
      )}
      {(warnings ?? []).map((w) => (
        <Alert key={w} color="yellow" role="status">
          {sentence(w)}
        </Alert>
      ))}
      {items.length === 0 && (
        <p className="quiet">{t('The generators return nothing: there would be no application.')}</p>
      )}
      {items.length > 0 && (
        <div className="set-choices" role="toolbar" aria-label={t('Which applications are shown')}>
          {choices
            .filter(([key]) => key === 'all' || shownItems(items, key).length > 0)
            .map(([key, label]) => (
              <Button
                key={key}
                size="compact-xs"
                variant={shown === key ? 'light' : 'default'}
                aria-pressed={shown === key}
                onClick={() => setShown(key)}
              >
                {label}
              </Button>
            ))}
        </div>
      )}
      <ul aria-label={t('Applications of the preview')}>
        {found.slice(0, most).map((i) => (
          <Item key={`${i.namespace}/${i.name}/${i.problem ?? ''}`} item={i} />
        ))}
      </ul>
      {found.length > most && (
        <Button variant="default" size="xs" onClick={() => setMost(most + portion)}>
          {t('Show more')}
        </Button>
      )}
    </section>
  );
}

type Form = 'diff' | 'live' | 'desired' | 'parameters';

function Item({ item }: { item: Previewed }) {
  const [open, setOpen] = useState(false);
  const action = item.action === 'update' ? 'change' : item.action;
  return (
    <li data-action={action}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className="edit-action">
          <span aria-hidden>{signs[item.action]}</span> {words[item.action]}
        </span>
        <span className="breakable">{item.name || t('no name')}</span>
        {item.namespace !== 'argocd' && <span className="quiet">{item.namespace}</span>}
        {item.held && <span className="quiet">{t('waits for consent')}</span>}
      </button>
      {item.problem && <p className="edit-failed">{sentence(item.problem)}</p>}
      {open && <Content item={item} />}
    </li>
  );
}

function Content({ item }: { item: Previewed }) {
  const forms: { value: Form; label: string }[] = [
    ...(item.before && item.after ? [{ value: 'diff' as const, label: t('Diff') }] : []),
    ...(item.after ? [{ value: 'desired' as const, label: t('Desired') }] : []),
    ...(item.before ? [{ value: 'live' as const, label: t('Live') }] : []),
    ...(item.parameters ? [{ value: 'parameters' as const, label: t('Parameters') }] : []),
  ];
  const [chosen, setChosen] = useState<Form>();
  const form = chosen ?? forms[0]?.value;
  if (!form) return null;
  return (
    <div className="set-content">
      <SegmentedControl
        size="xs"
        aria-label={t('What is shown of {{name}}', { name: item.name })}
        data={forms}
        value={form}
        onChange={(next) => setChosen(forms.find((f) => f.value === next)?.value)}
      />
      {form === 'diff' && (
        <ComparisonView left={yamlOf(item.before, false)} right={yamlOf(item.after, false)} mode="unified" />
      )}
      {form === 'desired' && <pre className="mono">{yamlOf(item.after, false)}</pre>}
      {form === 'live' && <pre className="mono">{yamlOf(item.before, false)}</pre>}
      {form === 'parameters' && <pre className="mono">{stringify(item.parameters, { lineWidth: 0 })}</pre>}
    </div>
  );
}
