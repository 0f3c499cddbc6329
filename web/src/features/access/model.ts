import { t } from '../../texts';

/** One line of a policy that counts: a rule, or who has a role. */
export type Line =
  | { kind: 'rule'; line: number; subject: string; resource: string; action: string; object: string; effect: string }
  | { kind: 'grant'; line: number; subject: string; role: string };

/** Reads the lines of a policy. What the hub would refuse is left out here; the hub says so. */
export function readPolicy(text: string): Line[] {
  const out: Line[] = [];
  text.split('\n').forEach((raw, i) => {
    const [mark = '', ...fields] = raw.split(',').map((f) => f.trim());
    const [a = '', b = '', c = '', d = '', e = ''] = fields;
    if (mark === 'p' && a && b) {
      out.push({ kind: 'rule', line: i + 1, subject: a, resource: b, action: c, object: d, effect: e || 'allow' });
    }
    if (mark === 'g' && a && b) out.push({ kind: 'grant', line: i + 1, subject: a, role: b });
  });
  return out;
}

/** A role of a policy: what it allows and who has it. */
export interface Role {
  name: string;
  rules: number;
  denials: number;
  holders: string[];
}

/** The roles that every tenant has. */
export const builtIn = ['role:admin', 'role:readonly', 'role:tenant-admin'];

/** The roles that a policy speaks of or accounts have, in order of their names. */
export function rolesOf(
  lines: readonly Line[],
  accounts: readonly { name: string; roles: readonly string[] }[],
): Role[] {
  const all = new Map<string, Role>();
  const role = (name: string) => {
    const held = all.get(name) ?? { name, rules: 0, denials: 0, holders: [] };
    all.set(name, held);
    return held;
  };
  for (const name of builtIn) role(name);
  for (const l of lines) {
    if (l.kind === 'rule' && l.subject.startsWith('role:')) {
      const r = role(l.subject);
      r.rules++;
      if (l.effect === 'deny') r.denials++;
    }
    if (l.kind === 'grant') role(l.role).holders.push(l.subject);
  }
  for (const a of accounts) {
    for (const name of a.roles) {
      const { holders } = role(`role:${name}`);
      if (!holders.includes(a.name)) holders.push(a.name);
    }
  }
  return [...all.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** A group or person that policies name, and the roles that it has by them. */
export interface Group {
  name: string;
  roles: string[];
  where: string[];
}

/** The subjects that are no accounts: groups of identity providers, mostly. */
export function groupsOf(
  lines: readonly Line[],
  accounts: ReadonlySet<string>,
  projects: readonly { name: string; roles: readonly { name: string; groups: readonly string[] }[] }[],
): Group[] {
  const all = new Map<string, Group>();
  const note = (name: string, role: string, where: string) => {
    if (accounts.has(name) || name.startsWith('role:') || name.startsWith('proj:') || name === '*') return;
    const g = all.get(name) ?? { name, roles: [], where: [] };
    all.set(name, g);
    g.roles.push(role);
    if (!g.where.includes(where)) g.where.push(where);
  };
  for (const l of lines) {
    if (l.kind === 'grant') note(l.subject, l.role, 'policy.csv');
    if (l.kind === 'rule') note(l.subject, t('rule in line {{line}}', { line: l.line }), 'policy.csv');
  }
  for (const p of projects) {
    for (const r of p.roles)
      for (const g of r.groups) note(g, `proj:${p.name}:${r.name}`, t('project {{name}}', { name: p.name }));
  }
  return [...all.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** The actions that each resource has. */
export const actions: Record<string, readonly string[]> = {
  applications: [
    'get',
    'create',
    'update',
    'delete',
    'sync',
    'rollback',
    'override',
    'action/*',
    'update/*',
    'delete/*',
    '*',
  ],
  projects: ['get', 'create', 'update', 'delete', '*'],
  clusters: ['get', 'create', 'update', 'delete', 'override', '*'],
  repositories: ['get', 'create', 'update', 'delete', '*'],
  'write-repositories': ['get', 'create', 'update', 'delete', '*'],
  certificates: ['get', 'create', 'update', 'delete', '*'],
  gpgkeys: ['get', 'create', 'delete', '*'],
  accounts: ['get', 'create', 'update', 'delete', '*'],
  logs: ['get', '*'],
  exec: ['create', '*'],
  settings: ['get', 'update', '*'],
  audit: ['get', 'update', '*'],
};

/** What is known for completions. */
export interface Known {
  subjects: readonly string[];
  roles: readonly string[];
  objects: readonly string[];
}

/**
 * What may come at the end of a line that is being written: the choices, and
 * how many characters of the line are the beginning of one.
 */
export function choices(before: string, known: Known): { options: string[]; typed: number } {
  const fields = before.split(',').map((f) => f.trimStart());
  const last = fields.at(-1) ?? '';
  const of = (options: readonly string[]) => ({
    options: options.filter((o) => o.toLowerCase().startsWith(last.toLowerCase()) && o !== last),
    typed: last.length,
  });
  const mark = fields[0]?.trim();
  if (fields.length === 1) return of(['p, ', 'g, ']);
  if (mark === 'g') return of(fields.length === 2 ? known.subjects : fields.length === 3 ? known.roles : []);
  if (mark !== 'p' && mark !== 't') return { options: [], typed: 0 };
  switch (fields.length) {
    case 2:
      return of([...known.roles, ...known.subjects]);
    case 3:
      return of(Object.keys(actions));
    case 4:
      return of(actions[fields[2]?.trim() ?? ''] ?? []);
    case 5:
      return of(known.objects);
    case 6:
      return of(['allow', 'deny']);
    default:
      return { options: [], typed: 0 };
  }
}

/** Reads a question as people write it: delete applications shop/*. */
export function readQuestion(text: string): { resource: string; action: string; object: string } | undefined {
  const [first = '', second = '', object = ''] = text.trim().split(/\s+/);
  if (!first || !second || !object) return undefined;
  const swapped = actions[first] !== undefined && actions[second] === undefined;
  return swapped ? { resource: first, action: second, object } : { resource: second, action: first, object };
}

/** The secrets that the configuration of a provider refers to, without the $. */
export function referencesOf(text: string): string[] {
  const found = [...text.matchAll(/\$([A-Za-z0-9][-A-Za-z0-9_.]*(?::[-A-Za-z0-9_.]+)?)/g)].map((m) => m[1] ?? '');
  return [...new Set(found)].slice(0, 20);
}

/** Where a secret is stored that a configuration refers to: KEY in argocd-secret, NAME:KEY in another Secret. */
export function placeOf(reference: string): { map: string; key: string } {
  const at = reference.indexOf(':');
  if (at < 0) return { map: 'argocd-secret', key: reference };
  const name = reference.slice(0, at);
  return { map: name === 'argocd-secret' ? name : `secret:${name}`, key: reference.slice(at + 1) };
}

/** An address that a link may lead to: of http or https, and else nothing. */
export function webAddress(text: string): string {
  try {
    const { protocol, href } = new URL(text);
    return protocol === 'https:' || protocol === 'http:' ? href : '';
  } catch {
    return '';
  }
}
