import { Alert, Badge } from '@mantine/core';
import { useState } from 'react';
import { stringify } from 'yaml';
import type { ObjectDiff } from '../../../api/client';
import { sentence } from '../../../api/errors';
import { shortRevision } from '../../../format/format';
import { t } from '../../../texts';
import { ComparisonView } from '../diff/comparison';
import { text } from '../object/read';
import { yamlOf } from '../object/yaml';
import type { ApplicationPreview } from './api';

/** So many objects are listed; the rest is counted. */
const listed = 200;

/** What an application would consist of, and what a sync of it would change. Nothing of it is stored. */
export function Preview({ preview }: { preview: ApplicationPreview }) {
  const { objects, items, warnings, revisions, uncompared, cluster } = preview;
  const from = revisions.filter(Boolean).map(shortRevision).join(', ');
  return (
    <section className="edit-preview" aria-label={t('Preview')}>
      <header>
        <b role="status">
          {objects.length === 1 ? '1 object' : `${objects.length} objects`}
          {items && `, ${counted(items)}`}
        </b>
        <span className="quiet">
          {from && `from ${from} `}
          {cluster && `on ${cluster}`}
        </span>
      </header>
      {uncompared && <p className="quiet">{sentence(uncompared)}</p>}
      {(warnings ?? []).map((w) => (
        <Alert key={w} color="yellow" role="status">
          {sentence(w)}
        </Alert>
      ))}
      {objects.length === 0 && <p className="quiet">{t('Nothing is rendered: the source has no manifests.')}</p>}
      {items && items.length > 0 && (
        <>
          <h4>{t('What a sync would change')}</h4>
          <ul>
            {items.slice(0, listed).map((d) => (
              <Difference key={[d.group, d.kind, d.namespace, d.name].join('/')} item={d} />
            ))}
          </ul>
        </>
      )}
      {items && items.length === 0 && <p className="quiet">{t('Nothing differs from the cluster.')}</p>}
      {objects.length > 0 && <h4>{t('Objects')}</h4>}
      <ul>
        {objects.slice(0, listed).map((o, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: rendered objects have no identity but their place
          <Rendered key={i} object={o} />
        ))}
      </ul>
      {objects.length > listed && <p className="quiet">and {objects.length - listed} more</p>}
    </section>
  );
}

/** What becomes of an object that differs. */
export function actionOf(d: ObjectDiff): 'create' | 'change' | 'delete' {
  if (!d.desired) return 'delete';
  return d.live ? 'change' : 'create';
}

function counted(items: readonly ObjectDiff[]): string {
  const count = (a: string) => items.filter((d) => actionOf(d) === a).length;
  return `${count('create')} created, ${count('change')} changed, ${count('delete')} deleted`;
}

const signs = { create: '+', change: '≠', delete: '−' };

function Difference({ item }: { item: ObjectDiff }) {
  const [open, setOpen] = useState(false);
  const action = actionOf(item);
  return (
    <li data-action={action}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className="edit-action">
          <span aria-hidden>{signs[action]}</span> {action}
        </span>
        <span className="breakable">{item.name}</span> <span className="quiet">{item.kind}</span>
        {item.problem && <Badge color="red">refused</Badge>}
      </button>
      {item.problem && <p className="edit-failed">The API server would refuse it: {sentence(item.problem)}</p>}
      {open && (
        <ComparisonView
          left={yamlOf(item.normalizedLive ?? item.live, false)}
          right={yamlOf(item.desired, false)}
          mode="unified"
        />
      )}
    </li>
  );
}

function Rendered({ object }: { object: unknown }) {
  const [open, setOpen] = useState(false);
  const namespace = text(object, 'metadata.namespace');
  return (
    <li>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className="breakable">{text(object, 'metadata.name')}</span>{' '}
        <span className="quiet">
          {text(object, 'kind')}
          {namespace && ` in ${namespace}`}
        </span>
      </button>
      {open && <pre className="mono">{stringify(object, { lineWidth: 0 })}</pre>}
    </li>
  );
}
