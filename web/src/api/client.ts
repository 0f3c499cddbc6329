import createClient, { type Middleware } from 'openapi-fetch';
import { t } from '../texts';
import { HubError } from './errors';
import { root } from './root';
import type { components, paths } from './schema.gen';

export type Application = components['schemas']['Application'];
export type Cluster = components['schemas']['Cluster'];
export type Repository = components['schemas']['Repository'];
export type Node = components['schemas']['Node'];
export type ResourceAction = components['schemas']['ResourceAction'];
export type ObjectDiff = components['schemas']['ObjectDiff'];
export type HistoryEntry = components['schemas']['HistoryEntry'];
export type OperationState = components['schemas']['OperationState'];
export type ObjectResult = components['schemas']['ObjectResult'];
export type KubernetesEvent = components['schemas']['KubernetesEvent'];
export type LogEntry = components['schemas']['LogEntry'];
export type Me = components['schemas']['Me'];
export type Enrolment = components['schemas']['Enrolment'];
export type Tree = components['schemas']['Tree'];
export type StreamEvent = components['schemas']['StreamEvent'];
export type Setting = components['schemas']['Setting'];
export type KnownSetting = components['schemas']['KnownSetting'];
export type SyncRequest = components['schemas']['SyncRequest'];

/** Requests of the console say so; a foreign page cannot set this header. */
const marked: Middleware = {
  onRequest({ request }) {
    request.headers.set('X-Capstan-Client', 'console');
    return request;
  },
  async onResponse({ response }) {
    if (response.ok) return response;
    throw await HubError.from(response);
  },
};

export const api = createClient<paths>({
  baseUrl: window.location.origin + root,
  credentials: 'same-origin',
  fetch: (request) => globalThis.fetch(request),
});
api.use(marked);

/** The body of an answer that is known to have one. */
export function body<T>(answer: { data?: T }): T {
  if (answer.data === undefined) throw new HubError(t('The hub sent an empty answer.'), {});
  return answer.data;
}

/** The whole address of a path of the hub, root included, as others outside of the page need it. */
export const absolute = (path: string): string => window.location.origin + path;
