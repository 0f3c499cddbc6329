import { Checkbox } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { useDenied } from '../../../api/session';
import { t } from '../../../texts';
import { ActionButton } from '../../../ui/action-button';
import { Page } from '../../../ui/page';
import { at, text } from '../object/read';
import { editMutations } from './api';
import { begin } from './document';
import { Editor } from './editor';

/** A new application: by form, by YAML, or by both. */
export default function CreatePage() {
  const search = useSearch({ from: '/shell/applications/new' });
  const navigate = useNavigate({ from: '/applications/new' });
  const [begun] = useState(() => begin(search));
  const [written, setWritten] = useState(begun);
  const [sync, setSync] = useState(true);
  const create = useMutation(editMutations.create());
  const [made, setMade] = useState<{ namespace: string; name: string }>();
  useEffect(() => {
    if (made) navigate({ to: '/applications/$namespace/$name', params: made });
  }, [made]);
  return (
    <Page title={t('New application')} about={t('What to deploy, from where, and to which cluster')}>
      <Editor
        text={written}
        change={(tree) => {
          create.reset();
          setWritten(tree);
        }}
        begun={made ? written : begun}
        fresh
        error={create.error}
        show={search.show}
        setShow={(show) => navigate({ search: { ...search, show }, replace: true })}
        actions={({ app, attempt }) => {
          const manual = at(app.spec, 'syncPolicy.automated') === undefined;
          const project = text(app.spec, 'project') || 'default';
          return (
            <>
              {manual && (
                <Checkbox label={t('Sync it once')} checked={sync} onChange={(e) => setSync(e.currentTarget.checked)} />
              )}
              <Create
                project={project}
                loading={create.isPending}
                run={() => attempt(() => create.mutate({ app, sync: manual && sync }, { onSuccess: setMade }))}
              />
            </>
          );
        }}
      />
    </Page>
  );
}

function Create(props: { project: string; loading: boolean; run: () => void }) {
  const denied = useDenied('applications', 'create', props.project);
  return (
    <ActionButton why={denied} loading={props.loading} onClick={props.run}>
      {t('Create')}
    </ActionButton>
  );
}
