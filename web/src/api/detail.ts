import type { Application, StreamEvent, Tree } from './client';

let shown = '';
let onShown = () => {};

/** The application whose page is open, as namespace/name; empty: none. The stream brings what changes of it. */
export const shownApplication = () => shown;

export function showApplication(name: string) {
  if (name === shown) return;
  shown = name;
  onShown();
}

/** Has one function called whenever another application is shown, until what it returns is called. */
export function watchShown(changed: () => void): () => void {
  onShown = changed;
  return () => {
    if (onShown === changed) onShown = () => {};
  };
}

/** What a stream has brought of an application. Before its first event it has the tree that the console had. */
export interface Details {
  application?: Application | undefined;
  tree?: Tree | undefined;
}

/** What an event makes of it; undefined: the application is gone, or the event continues something else. */
export function detailed(held: Details, e: StreamEvent): Details | undefined {
  const { base, tree } = e;
  const application = e.application ?? (held.application && patched(held.application, e.changed));
  if (e.gone || !application || !tree) return undefined;
  if (!base) return { application, tree };
  if (base !== held.tree?.tag) return undefined;
  const removed = new Set(e.removed);
  const nodes = held.tree.nodes.filter((_, i) => !removed.has(i));
  for (const [k, node] of tree.nodes.entries()) nodes.splice(e.at?.[k] ?? 0, 0, node);
  return { application, tree: { ...tree, nodes } };
}

/** An application with other fields, and its status with others; null takes one out. */
function patched(held: Application, changed: StreamEvent['changed'] = {}): Application {
  return put({ ...held, ...changed, status: put({ ...held.status, ...Object(changed['status']) }) });
}

function put<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)) as T;
}
