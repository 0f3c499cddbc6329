import { Button } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useDenied } from '../../api/session';
import { t } from '../../texts';
import { ActionButton } from '../../ui/action-button';

/** The way to a new application; it says which right is missing. */
export function NewApplication() {
  const denied = useDenied('applications', 'create');
  const icon = <IconPlus size={16} aria-hidden />;
  if (denied) {
    return (
      <ActionButton why={denied} leftSection={icon}>
        {t('New application')}
      </ActionButton>
    );
  }
  return (
    <Button leftSection={icon} renderRoot={(props) => <Link to="/applications/new" {...props} />}>
      {t('New application')}
    </Button>
  );
}
