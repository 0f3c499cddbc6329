import { Alert, Button, Group, Modal, SegmentedControl } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useBlocker } from '@tanstack/react-router';
import { type ReactNode, useMemo, useState } from 'react';
import type { Application } from '../../../api/client';
import { HubError } from '../../../api/errors';
import { CodeEditor } from '../../../ui/code-editor';
import { Problem } from '../../../ui/states';
import { fields } from '../object/read';
import { editMutations } from './api';
import { fieldOf, lineOf, type Path, problemsOf, read, samePath, write } from './document';
import './edit.css';
import { t } from '../../../texts';
import type { Form } from './fields';
import { Preview } from './preview';
import { SpecForm } from './spec-form';

/** The text as an application that the API takes. */
export function applicationOf(value: unknown): Application {
  const raw = fields(value);
  const metadata = fields(raw['metadata']);
  return {
    ...raw,
    apiVersion: String(raw['apiVersion'] ?? ''),
    kind: String(raw['kind'] ?? ''),
    metadata: { ...metadata, name: String(metadata['name'] ?? '') },
    spec: fields(raw['spec']),
  };
}

interface Props {
  text: string;
  change: (text: string) => void;
  /** What it began with: something is unsaved where the text is another one. */
  begun: string;
  fresh: boolean;
  /** What the hub said of the last attempt to save. */
  error: unknown;
  /** On a narrow screen, one of both is shown: `yaml`, or the form. */
  show: string | undefined;
  setShow: (show: string | undefined) => void;
  head?: ReactNode;
  /** What can be done with it. An attempt shows first what is missing. */
  actions: (ready: { app: Application; attempt: (run: () => void) => void }) => ReactNode;
}

/** An application as form and YAML beside each other: one text, changed from both sides. */
export function Editor(props: Props) {
  const { text, change, begun, fresh, error, show, setShow, head, actions } = props;
  const draft = useMemo(() => read(text), [text]);
  const preview = useMutation(editMutations.preview());
  const [asked, setAsked] = useState(false);
  const [previewed, setPreviewed] = useState('');
  const problems = problemsOf(draft.value);
  const failed = error ?? preview.error;
  const message = failed instanceof HubError ? failed.message : '';
  const blamed = message ? fieldOf(message, draft.value) : undefined;
  const problem = (path: Path) =>
    (blamed && samePath(blamed, path) ? message : undefined) ??
    (asked ? problems.find((p) => samePath(p.path, path))?.message : undefined);
  const form: Form = {
    value: draft.value,
    problem,
    set: (path, value) => change(write(text, path, value)),
    edit: (f) => change(f(text)),
  };
  const marks = [
    draft.line,
    ...(blamed ? [lineOf(text, blamed)] : []),
    ...(asked ? problems.map((p) => lineOf(text, p.path)) : []),
  ].filter((n) => n !== undefined);
  const why = draft.problem ? t('The YAML cannot be read.') : (problems[0]?.message ?? '');
  const app = applicationOf(draft.value);
  const attempt = (run: () => void) => {
    setAsked(true);
    if (!why) run();
  };
  const look = () =>
    attempt(() => {
      setPreviewed(text);
      preview.mutate(app);
    });
  return (
    <div className="edit" data-show={show === 'yaml' ? 'yaml' : 'form'}>
      <Leaving dirty={text !== begun} />
      {head}
      {failed != null && <Problem error={failed} />}
      <SegmentedControl
        className="edit-show"
        fullWidth
        aria-label={t('Form or YAML')}
        value={show === 'yaml' ? 'yaml' : 'form'}
        data={[
          { value: 'form', label: t('Form') },
          { value: 'yaml', label: t('YAML') },
        ]}
        onChange={(v) => setShow(v === 'yaml' ? 'yaml' : undefined)}
      />
      <div className="edit-sides">
        <div className="edit-left">
          {draft.problem ? (
            <Alert color="yellow" role="status" title={t('The form waits')}>
              {draft.line
                ? t('The YAML cannot be read at line {{line}}: {{problem}} The form goes on when that is mended.', {
                    line: draft.line,
                    problem: draft.problem,
                  })
                : t('The YAML cannot be read: {{problem}} The form goes on when that is mended.', {
                    problem: draft.problem,
                  })}
            </Alert>
          ) : (
            <SpecForm form={form} fresh={fresh} />
          )}
        </div>
        <div className="edit-right" data-previewed={preview.data !== undefined}>
          <section className="edit-yaml" aria-label={t('YAML')}>
            <CodeEditor
              label={t('YAML of the application')}
              language="yaml"
              value={text}
              change={change}
              marks={marks}
            />
          </section>
          {preview.data && (
            <>
              {previewed !== text && (
                <p className="edit-old" role="status">
                  {t('It was changed since this preview.')}
                </p>
              )}
              <Preview preview={preview.data} />
            </>
          )}
        </div>
      </div>
      <footer className="edit-foot">
        <span className="quiet" role="status">
          {asked && why}
        </span>
        <Button variant="default" loading={preview.isPending} onClick={look}>
          {t('Preview')}
        </Button>
        <span className="edit-actions">{actions({ app, attempt })}</span>
      </footer>
    </div>
  );
}

/** Asks before a page is left whose changes are not saved. */
function Leaving({ dirty }: { dirty: boolean }) {
  const blocker = useBlocker({
    shouldBlockFn: ({ current, next }) =>
      dirty && (current.pathname !== next.pathname || !sameTab(current.search, next.search)),
    enableBeforeUnload: dirty,
    withResolver: true,
  });
  if (blocker.status !== 'blocked') return null;
  return (
    <Modal opened onClose={blocker.reset} title={t('Leave without saving?')}>
      <p>{t('What you have changed here is not saved.')}</p>
      <Group justify="flex-end">
        <Button variant="default" data-autofocus onClick={blocker.reset}>
          {t('Stay')}
        </Button>
        <Button color="red" variant="outline" onClick={blocker.proceed}>
          {t('Leave')}
        </Button>
      </Group>
    </Modal>
  );
}

/** Whether two addresses of a page have the editor open. */
function sameTab(a: unknown, b: unknown): boolean {
  return fields(a)['tab'] === fields(b)['tab'];
}
