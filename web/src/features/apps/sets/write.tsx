import { Alert, Button, SegmentedControl, Text } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { sentence } from '../../../api/errors';
import { useDenied } from '../../../api/session';
import { count, Rich, t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { CodeEditor } from '../../../ui/code-editor';
import { Confirm, Page } from '../../../ui/page';
import { Problem } from '../../../ui/states';
import { text as plain } from '../object/read';
import { type ApplicationSet, type SetPreview, setMutations } from './api';
import type { SetKey } from './keys';
import { firstSet, guardOf, keyOfSet, projectOfSet, readSet, textOfSet } from './model';
import { Preview } from './preview';
import type { SetSearch } from './search';
import '../edit/edit.css';
import './sets.css';

/** A new ApplicationSet, with a preview of what it would make. */
export function NewSet() {
  const search = useSearch({ from: '/shell/applicationsets/new' });
  const navigate = useNavigate({ from: '/applicationsets/new' });
  const create = useMutation(setMutations.create());
  const [text, setText] = useState(firstSet);
  return (
    <Page title={t('New ApplicationSet')} about={t('A template, and what it is filled with')}>
      <Writer
        text={text}
        change={(next) => {
          create.reset();
          setText(next);
        }}
        show={search.show}
        go={(change) => void navigate({ search: { ...search, ...change }, replace: true })}
        error={create.error}
        actions={(draft) => (
          <Guarded
            {...draft}
            action="create"
            label={t('Create')}
            pending={create.isPending}
            error={create.error}
            run={(set) =>
              create.mutate(set, {
                onSuccess: (made) =>
                  void navigate({ to: '/applicationsets/$namespace/$name', params: keyOfSet(made), search: {} }),
              })
            }
          />
        )}
      />
    </Page>
  );
}

interface SaveProps {
  setKey: SetKey;
  stored: ApplicationSet;
  show: string | undefined;
  go: (change: SetSearch) => void;
}

/** The text of a stored set, to be changed. */
export function SaveSet({ setKey, stored, show, go }: SaveProps) {
  const save = useMutation(setMutations.save(setKey));
  const [base, setBase] = useState(stored);
  const [text, setText] = useState(() => textOfSet(stored));
  const dirty = text !== textOfSet(base);
  const begin = (from: ApplicationSet) => {
    setBase(from);
    setText(textOfSet(from));
    save.reset();
  };
  const newer = textOfSet(stored) !== textOfSet(base);
  const parent = stored.status?.capstan?.parent;
  return (
    <Writer
      text={text}
      change={(next) => {
        save.reset();
        setText(next);
      }}
      show={show}
      go={go}
      error={save.error}
      head={
        <>
          {parent && (
            <Alert color="yellow" role="status" title={t('Managed by an application')}>
              <Rich
                text="<parent/> renders this ApplicationSet: its next sync undoes what is changed here. Change it in its source."
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
          {newer && (
            <Alert color="yellow" role="alert" title={t('Somebody else has changed it since you began')}>
              <Button size="xs" variant="default" onClick={() => begin(stored)}>
                {t('Begin again with what is stored')}
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
      actions={(draft) => (
        <>
          <Button variant="default" disabled={!dirty} onClick={() => begin(stored)}>
            {t('Discard changes')}
          </Button>
          <Guarded
            {...draft}
            action="update"
            label={t('Save')}
            why={
              dirty
                ? draft.set && keyOfSet(draft.set).name !== setKey.name
                  ? t('The name stays {{name}}: create another ApplicationSet instead.', { name: setKey.name })
                  : ''
                : t('Nothing is changed yet.')
            }
            pending={save.isPending}
            error={save.error}
            run={(set) =>
              save.mutate(
                { set, version: base.metadata.resourceVersion ?? '' },
                {
                  onSuccess: (saved) => {
                    setBase(saved);
                    setText(textOfSet(saved));
                  },
                },
              )
            }
          />
        </>
      )}
    />
  );
}

/** What somebody has written, and what is known of it. */
interface Draft {
  set: ApplicationSet | undefined;
  /** Of exactly this text; undefined: it was not previewed. */
  preview: SetPreview | undefined;
}

interface WriterProps {
  text: string;
  change: (text: string) => void;
  show: string | undefined;
  go: (change: SetSearch) => void;
  error: unknown;
  head?: ReactNode;
  actions: (draft: Draft) => ReactNode;
}

/** The text of a set beside what it would make. On a narrow screen one of the two is shown. */
function Writer({ text, change, show, go, error, head, actions }: WriterProps) {
  const preview = useMutation(setMutations.preview());
  const [previewed, setPreviewed] = useState<string>();
  const { set, problem, line } = readSet(text);
  const current = previewed === text ? preview.data : undefined;
  const run = () => {
    if (!set) return;
    setPreviewed(text);
    go({ show: 'preview' });
    preview.mutate(set);
  };
  return (
    <div className="edit set-writer" data-show={show === 'preview' ? 'preview' : 'text'}>
      {head}
      {error != null && <Problem error={error} />}
      <SegmentedControl
        className="set-switch"
        size="xs"
        aria-label={t('Text or preview')}
        value={show === 'preview' ? 'preview' : 'text'}
        data={[
          { value: 'text', label: t('YAML') },
          { value: 'preview', label: t('Preview') },
        ]}
        onChange={(next) => go({ show: next === 'preview' ? 'preview' : undefined })}
      />
      <div className="edit-sides">
        <div className="edit-left">
          <div className="edit-yaml">
            <CodeEditor
              label={t('ApplicationSet as YAML')}
              language="yaml"
              value={text}
              change={change}
              marks={line ? [line] : []}
            />
          </div>
          {problem && (
            <Text role="alert" size="sm" mt="xs">
              {sentence(problem)}
            </Text>
          )}
        </div>
        <div className="edit-right">
          {preview.error != null && previewed === text && <Problem error={preview.error} />}
          {current && <Preview preview={current} />}
          {!current && !(preview.error != null && previewed === text) && (
            <p className="quiet">
              {preview.isPending
                ? t('The generators are being run …')
                : t('A preview says which applications would be made, changed and deleted. It stores nothing.')}
            </p>
          )}
        </div>
      </div>
      <footer className="edit-foot">
        <span className="quiet" />
        <span className="edit-actions">
          <Button variant="default" disabled={!set} loading={preview.isPending} onClick={run}>
            {t('Preview')}
          </Button>
          {actions({ set, preview: current })}
        </span>
      </footer>
    </div>
  );
}

interface GuardedProps extends Draft {
  action: 'create' | 'update';
  label: string;
  why?: string;
  pending: boolean;
  error: unknown;
  run: (set: ApplicationSet) => void;
}

/** Saves what was previewed. Where applications would be deleted, it asks first. */
function Guarded({ set, preview, action, label, why = '', pending, error, run }: GuardedProps) {
  const [asking, setAsking] = useState(false);
  const project = projectIn(set);
  const noSet = useDenied('applicationsets', action, project);
  const noApplications = useDenied('applications', 'create', project);
  const guard = preview && guardOf(preview);
  const barred = noSet || noApplications || why || (preview ? '' : t('Look at a preview of it first.'));
  const save = () => {
    setAsking(false);
    if (set) run(set);
  };
  return (
    <>
      <ActionButton
        why={barred}
        disabled={!set}
        loading={pending}
        onClick={() => (guard && guard.deleted.length > 0 ? setAsking(true) : save())}
      >
        {label}
      </ActionButton>
      {asking && guard && set && (
        <Confirm
          title={t('Save {{name}}, and delete applications?', { name: set.metadata.name })}
          action={t('Save and delete')}
          {...(guard.all || guard.held > 0 ? { typed: set.metadata.name } : {})}
          effects={[
            count(guard.deleted.length, '{{n}} application is deleted.', '{{n}} applications are deleted.'),
            ...(guard.all ? [t('None of the applications that there are stays.')] : []),
            ...(guard.held > 0
              ? [
                  count(
                    guard.held,
                    '{{n}} application is only deleted when somebody consents on this page.',
                    '{{n}} applications are only deleted when somebody consents on this page.',
                  ),
                ]
              : []),
          ]}
          denied={barred}
          error={error}
          pending={pending}
          run={save}
          close={() => setAsking(false)}
        >
          <ul className="set-names set-scroll" aria-label={t('Applications that are deleted')}>
            {guard.deleted.map((name) => (
              <li key={name}>{name}</li>
            ))}
          </ul>
        </Confirm>
      )}
    </>
  );
}

/** The project that the rights on a set are of, as its text says. */
function projectIn(set: ApplicationSet | undefined): string {
  const written = plain(set?.spec, 'template.spec.project');
  return written.includes('{{') ? '*' : written || projectOfSet(set);
}
