import { t } from '../texts';

interface Detail {
  code?: string;
  object?: string;
  cause?: string;
  fix?: string;
  requestId?: string;
  status?: number;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** An error of the hub in the words that a person reads. */
export class HubError extends Error {
  readonly detail: Detail;

  constructor(message: string, detail: Detail) {
    super(message);
    this.name = 'HubError';
    this.detail = detail;
  }

  static async from(response: Response): Promise<HubError> {
    const fallback = t('The hub answered {{status}}.', { status: response.status });
    const raw: unknown = await response.json().catch(() => ({}));
    const fields = new Map(Object.entries(typeof raw === 'object' && raw !== null ? raw : {}));
    const detail: Detail = { status: response.status };
    const set = (key: keyof Omit<Detail, 'status'>, name: string) => {
      const value = text(fields.get(name));
      if (value) detail[key] = value;
    };
    set('code', 'code');
    set('object', 'object');
    set('cause', 'cause');
    set('fix', 'fix');
    set('requestId', 'request_id');
    return new HubError(text(fields.get('message')) ?? fallback, detail);
  }
}

/** Whether the caller has to sign in (again). */
export function signedOut(error: unknown): boolean {
  return error instanceof HubError && error.detail.status === 401;
}

/** Whether the caller lacks the right. Nothing has failed then. */
export function refused(error: unknown): boolean {
  return error instanceof HubError && error.detail.status === 403;
}

/** Whether the same request may well succeed later: not after a plain refusal. */
export function worthRetrying(error: unknown): boolean {
  const status = error instanceof HubError ? (error.detail.status ?? 0) : 0;
  return status < 400 || status >= 500 || status === 429;
}

/** A message of the hub as a sentence: large first letter unless it begins with the name of a file, full stop. */
export function sentence(message: string): string {
  const text = message.trim();
  if (text === '') return '';
  const first = /^\w+\.\w/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…。！？]$/.test(first) ? first : `${first}.`;
}

export interface Words {
  title: string;
  fix?: string;
  reference?: string;
}

/** Turns anything thrown into words, in this one place. */
export function words(error: unknown): Words {
  if (!(error instanceof HubError)) {
    return { title: t('The hub cannot be reached.'), fix: t('Check the connection; the page goes on by itself.') };
  }
  const out: Words = { title: sentence(error.message) };
  if (error.detail.fix) out.fix = sentence(error.detail.fix);
  const reference = [error.detail.code, error.detail.requestId].filter(Boolean).join(' · ');
  if (reference) out.reference = reference;
  return out;
}
