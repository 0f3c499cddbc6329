import { Alert, Badge } from '@mantine/core';
import { useState } from 'react';
import { stringify } from 'yaml';
import type { ObjectDiff } from '../../../api/client';
import { sentence } from '../../../api/errors';
import { shortRevision } from '../../../format/format';
import { count, t } from '../../../texts';
import { actionSigns, actionWords } from '../diff/action';
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
          {[count(objects.length, '{{n}} object', '{{n}} objects'), ...(items ? [counted(items)] : [])].join(', ')}
        </b>
        <span className="quiet">
          {from && t('from {{revisions}}', { revisions: from })} {cluster && t('on {{cluster}}', { cluster })}
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
      {objects.length > listed && <p className="quiet">{t('and {{n}} more', { n: objects.length - listed })}</p>}
    </section>
  );
}

/** What becomes of an object that differs. */
export function actionOf(d: ObjectDiff): 'create' | 'change' | 'delete' {
  if (!d.desired) return 'delete';
  return d.live ? 'change' : 'create';
}

function counted(items: readonly ObjectDiff[]): string {
  const sum = (a: string) => items.filter((d) => actionOf(d) === a).length;
  return t('{{created}} created, {{changed}} changed, {{deleted}} deleted', {
    created: sum('create'),
    changed: sum('change'),
    deleted: sum('delete'),
  });
}

function Difference({ item }: { item: ObjectDiff }) {
  const [open, setOpen] = useState(false);
  const action = actionOf(item);
  return (
    <li data-action={action}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className="edit-action">
          <span aria-hidden>{actionSigns[action]}</span> {actionWords[action]}
        </span>
        <span className="breakable">{item.name}</span> <span className="quiet">{item.kind}</span>
        {item.problem && <Badge color="red">{t('refused')}</Badge>}
      </button>
      {item.problem && (
        <p className="edit-failed">
          {t('The API server would refuse it: {{problem}}', { problem: sentence(item.problem) })}
        </p>
      )}
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
          {namespace ? t('{{kind}} in {{namespace}}', { kind: text(object, 'kind'), namespace }) : text(object, 'kind')}
        </span>
      </button>
      {open && <pre className="mono">{stringify(object, { lineWidth: 0 })}</pre>}
    </li>
  );
}
