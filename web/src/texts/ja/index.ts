import { access } from './access';
import { account } from './account';
import { activity } from './activity';
import { application } from './application';
import { clusters } from './clusters';
import { common } from './common';
import { edit } from './edit';
import { frame } from './frame';
import { list } from './list';
import { live } from './live';
import { notifications } from './notifications';
import { object } from './object';
import { operator } from './operator';
import { projects } from './projects';
import { repositories } from './repositories';
import { sets } from './sets';
import { sync } from './sync';

/** All texts of the console in Japanese, by the English ones. */
export const ja = {
  ...access,
  ...account,
  ...activity,
  ...application,
  ...clusters,
  ...common,
  ...edit,
  ...frame,
  ...list,
  ...live,
  ...notifications,
  ...object,
  ...operator,
  ...projects,
  ...repositories,
  ...sets,
  ...sync,
} as const;
