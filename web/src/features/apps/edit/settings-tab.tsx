import { Alert, Anchor, Button, Modal, SegmentedControl } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { stringify } from 'yaml';
import type { Application } from '../../../api/client';
import { HubError } from '../../../api/errors';
import { noticeQueries } from '../../../api/notices';
import { under } from '../../../api/root';
import { meQuery, useDenied } from '../../../api/session';
import { Rich, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Command } from '../../../ui/page';
import { safeURL } from '../annotations';
import { type AppKey, appFilters } from '../api';
import { projectOf } from '../model';
import { equal } from '../object/patch';
import { text as plain } from '../object/read';
import { type AppSearch, changed } from '../search';
import { editMutations, linkQuery } from './api';
import { read, textOf, writable } from './document';
import { Editor } from './editor';
import { type Change, changesOf, merge, withValue } from './merge';

interface Props {
  appKey: AppKey;
  app: Application;
  search: AppSearch;
  go: (search: AppSearch) => void;
}

/** The code of a write that somebody else was faster with. */
const stale = 'CAP-1412';

const versionOf = (app: Application) => Number(app.metadata.resourceVersion ?? 0);

/** What people write of an application, to be changed as form and as YAML. */
export default function SettingsTab({ appKey, app, search, go }: Props) {
  const client = useQueryClient();
  const denied = useDenied('applications', 'update', projectOf(app));
  const [base, setBase] = useState(app);
  const [written, setWritten] = useState(() => textOf(app));
  const [merging, setMerging] = useState(false);
  const save = useMutation(editMutations.save(appKey));
  const begun = textOf(base);
  const newer = versionOf(app) > versionOf(base) && !equal(writable(base), writable(app)) ? app : undefined;
  const dirty = written !== begun;
  const isStale = save.error instanceof HubError && save.error.detail.code === stale;
  useEffect(() => {
    // Who has changed nothing sees what others changed.
    if (newer && !dirty) begin(newer);
  }, [newer, dirty]);
  useEffect(() => {
    if (isStale) void client.invalidateQueries(appFilters.one(appKey));
  }, [isStale]);
  const begin = (from: Application, text = textOf(from)) => {
    setBase(from);
    setWritten(text);
    save.reset();
  };
  const saved = (as: Application) => {
    setBase(as);
    setWritten(textOf(as));
  };
  const parent = app.status?.capstan?.parent;
  const set = app.status?.capstan?.applicationSet;
  return (
    <div className="edit-settings">
      <Editor
        text={written}
        change={(tree) => {
          if (!isStale) save.reset();
          setWritten(tree);
        }}
        begun={begun}
        fresh={false}
        error={isStale && newer ? undefined : save.error}
        show={search.show}
        setShow={(show) => go(changed(search, { show }))}
        head={
          <>
            {parent && (
              <Alert color="yellow" role="status" title={t('Managed by another application')}>
                <Rich
                  text="<parent/> renders this application: its next sync undoes what is changed here. Change it in its source."
                  parts={{
                    parent: (
                      <Link to="/applications/$namespace/$name" params={parent}>
                        {parent.name}
                      </Link>
                    ),
                  }}
                />
              </Alert>
            )}
            {set && (
              <Alert color="yellow" role="status" title={t('Managed by an ApplicationSet')}>
                <Rich
                  text="<set/> generates this application, and undoes what is changed here, but for the fields that it ignores or preserves."
                  parts={{
                    set: (
                      <Link to="/applicationsets/$namespace/$name" params={set} search={{ tab: 'edit' }}>
                        {set.name}
                      </Link>
                    ),
                  }}
                />
              </Alert>
            )}
            {newer && dirty && (
              <Alert color="yellow" role="alert" title={t('Somebody else has changed it since you began')}>
                <Button size="xs" variant="default" onClick={() => setMerging(true)}>
                  {t('Compare and merge')}
                </Button>
              </Alert>
            )}
            {save.isSuccess && !dirty && (
              <Alert color="teal" role="status">
                {t('Saved.')}
              </Alert>
            )}
          </>
        }
        actions={({ app: edited, attempt }) => (
          <>
            <Button variant="default" disabled={!dirty} onClick={() => begin(app)}>
              {t('Discard changes')}
            </Button>
            <ActionButton
              why={
                denied ||
                (edited.metadata.name === app.metadata.name
                  ? ''
                  : t('The name stays {{name}}: create another application instead.', { name: app.metadata.name })) ||
                (dirty ? '' : t('Nothing is changed yet.'))
              }
              loading={save.isPending}
              onClick={() =>
                attempt(() =>
                  save.mutate(
                    { app: edited, version: (newer ? base : app).metadata.resourceVersion ?? '' },
                    { onSuccess: saved },
                  ),
                )
              }
            >
              {t('Save')}
            </ActionButton>
          </>
        )}
      />
      {merging && newer && (
        <Merge
          base={writable(base)}
          mine={read(written).value}
          theirs={writable(newer)}
          close={() => setMerging(false)}
          take={(value) => {
            begin(newer, stringify(value, { lineWidth: 0, aliasDuplicateObjects: false }));
            setMerging(false);
          }}
        />
      )}
      <Snippets appKey={appKey} app={app} />
    </div>
  );
}

const nameOf = (path: readonly string[]) => path.join('.');
const shown = (value: unknown) =>
  value === undefined
    ? t('absent')
    : typeof value === 'object'
      ? stringify(value, { lineWidth: 0 }).trim()
      : plain(value) || '“”';

interface MergeProps {
  base: unknown;
  mine: unknown;
  theirs: unknown;
  take: (value: unknown) => void;
  close: () => void;
}

/** What two people have changed. Where they disagree, a person chooses. */
function Merge({ base, mine, theirs, take, close }: MergeProps) {
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const { value, conflicts } = merge(base, mine, theirs);
  const open = conflicts.filter((c) => !chosen[nameOf(c.path)]);
  const result = () =>
    conflicts.reduce((v, c) => (chosen[nameOf(c.path)] === 'mine' ? withValue(v, c.path, c.mine) : v), value);
  return (
    <Modal opened onClose={close} size="xl" title={t('Merge two changes')} classNames={{ body: 'edit-merge' }}>
      <Changes title={t('Changed by somebody else')} changes={changesOf(base, theirs)} />
      <Changes title={t('Changed by you')} changes={changesOf(base, mine)} />
      {conflicts.length > 0 && (
        <section aria-label={t('Changed by both')}>
          <h3>{t('Changed by both')}</h3>
          <table>
            <thead>
              <tr>
                <th scope="col">{t('Field')}</th>
                <th scope="col">{t('Yours')}</th>
                <th scope="col">{t('Theirs')}</th>
                <th scope="col">{t('What is kept')}</th>
              </tr>
            </thead>
            <tbody>
              {conflicts.map((c) => (
                <tr key={nameOf(c.path)}>
                  <td className="mono">{nameOf(c.path)}</td>
                  <td className="mono">{shown(c.mine)}</td>
                  <td className="mono">{shown(c.theirs)}</td>
                  <td>
                    <SegmentedControl
                      size="xs"
                      aria-label={t('What is kept of {{field}}', { field: nameOf(c.path) })}
                      value={chosen[nameOf(c.path)] ?? ''}
                      data={[
                        { value: 'mine', label: t('Yours') },
                        { value: 'theirs', label: t('Theirs') },
                      ]}
                      onChange={(v) => setChosen((held) => ({ ...held, [nameOf(c.path)]: v }))}
                    />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <footer className="edit-actions">
        <Button variant="default" onClick={close}>
          {t('Cancel')}
        </Button>
        <ActionButton
          why={open.length > 0 ? t('Choose what is kept of {{field}}.', { field: nameOf(open[0]?.path ?? []) }) : ''}
          onClick={() => take(result())}
        >
          {t('Merge')}
        </ActionButton>
      </footer>
    </Modal>
  );
}

function Changes({ title, changes }: { title: string; changes: Change[] }) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul>
        {changes.map((c) => (
          <li key={nameOf(c.path)}>
            <code>{nameOf(c.path)}</code>: {shown(c.before)} → {shown(c.after)}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What other pages show of the application, and where they are. */
function Snippets({ appKey, app }: { appKey: AppKey; app: Application }) {
  const me = useQuery(meQuery);
  const settings = useQuery(noticeQueries.client());
  const links = useQuery(linkQuery(appKey));
  const tenant = me.data?.tenant ?? '';
  const hub = (settings.data?.badgeUrl || settings.data?.url || new URL(under('/'), window.location.href).href).replace(
    /\/+$/,
    '',
  );
  const query = new URLSearchParams({ ...(tenant ? { tenant } : {}), namespace: appKey.namespace, name: appKey.name });
  const picture = `${hub}/api/badge?${query}`;
  const page = `${hub}/applications/${encodeURIComponent(appKey.namespace)}/${encodeURIComponent(appKey.name)}`;
  const all = (links.data ?? []).flatMap((l) => {
    const url = safeURL(l.url);
    return url ? [{ ...l, url }] : [];
  });
  return (
    <div className="edit-facts">
      <section aria-label={t('Badge')}>
        <h3>{t('Badge')}</h3>
        {settings.data?.features.statusBadge ? (
          <>
            <img src={under(`/api/badge?${query}`)} alt={t('Status of {{name}}', { name: app.metadata.name })} />
            <Command label={t('Copy as Markdown')} text={`[![${app.metadata.name}](${picture})](${page})`} />
            <Command
              label={t('Copy as HTML')}
              text={`<a href="${page}"><img src="${picture.replace(/&/g, '&amp;')}" alt="${app.metadata.name}"></a>`}
            />
          </>
        ) : (
          <p className="quiet">{t('An admin shows it to everybody with the setting statusbadge.enabled.')}</p>
        )}
      </section>
      <section aria-label={t('Deep links')}>
        <h3>{t('Deep links')}</h3>
        {all.length === 0 && <p className="quiet">{t('The setting application.links declares none for it.')}</p>}
        <ul>
          {all.map((l) => (
            <li key={l.title + l.url}>
              <Anchor
                href={l.url}
                target="_blank"
                rel="noopener noreferrer"
                size="sm"
                underline="always"
                title={l.description ?? ''}
              >
                {l.title}
              </Anchor>
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}
