import type { Application, Node } from '../../api/client';
import { t } from '../../texts';

/** What carries annotations: an application, or a row of a list with some of them. */
export interface Annotated {
  metadata: { annotations?: Record<string, string> };
}

/** What people say to the console with annotations of an Application. Each is read as NAME.capstan.dev, and then as
 * NAME.argocd.argoproj.io. */
function annotation(app: Annotated, family: string, name: string): string | undefined {
  const all = app.metadata.annotations ?? {};
  const prefix = family && `${family}.`;
  return all[`${prefix}capstan.dev/${name}`] ?? all[`${prefix}argocd.argoproj.io/${name}`];
}

/** The address if a browser may be sent there: http or https, a host, and no password. */
export function safeURL(text: string | undefined): string | undefined {
  if (!text || !/^https?:\/\//i.test(text)) return undefined;
  try {
    const url = new URL(text);
    return url.host && !url.username && !url.password ? url.href : undefined;
  } catch {
    return undefined;
  }
}

export interface Notice {
  content: string;
  severity: 'info' | 'warning' | 'critical';
  icon: string;
  url: string | undefined;
  permanent: boolean;
  scope: 'banner' | 'icon' | 'both';
}

const severities = {
  info: 'fa-info-circle',
  warning: 'fa-exclamation-triangle',
  critical: 'fa-exclamation-circle',
} as const;

export const noticeIcons = [
  'fa-info-circle',
  'fa-exclamation-triangle',
  'fa-exclamation-circle',
  'fa-bell',
  'fa-wrench',
  'fa-clock',
  'fa-bullhorn',
  'fa-life-ring',
  'fa-shield-alt',
] as const;

const longest = 500;

/** The message that people put on an application; words that are not known count as none. */
export function noticeOf(app: Annotated): Notice | undefined {
  const said = (name: string) => annotation(app, 'notice', name);
  const content = said('content')?.trim();
  if (!content) return undefined;
  const severity = (['info', 'warning', 'critical'] as const).find((s) => s === said('severity')) ?? 'info';
  const characters = [...content];
  return {
    content: characters.length > longest ? `${characters.slice(0, longest).join('')}…` : content,
    severity,
    icon: noticeIcons.find((i) => i === said('icon')) ?? severities[severity],
    url: safeURL(said('url')),
    permanent: said('permanent') === 'true',
    scope: (['banner', 'icon', 'both'] as const).find((s) => s === said('scope')) ?? 'both',
  };
}

export const views = ['tree', 'pods', 'network', 'list'] as const;
export type View = (typeof views)[number];

/** The view of the resources that people want first. */
export function defaultView(app: Application): View {
  return views.find((v) => v === annotation(app, 'pref', 'default-view')) ?? 'tree';
}

/** Whether the application says itself in which view its objects are shown. */
export function prefersView(app: Application): boolean {
  return views.some((v) => v === annotation(app, 'pref', 'default-view'));
}

export const podSorts = ['node', 'parentResource', 'topLevelResource'] as const;
export type PodSort = (typeof podSorts)[number];

/** By what pods are grouped first. */
export function defaultPodSort(app: Application): PodSort {
  return podSorts.find((s) => s === annotation(app, 'pref', 'default-pod-sort')) ?? 'topLevelResource';
}

/** The page of the application in the installation that manages it; undefined: it is this one. */
export function managedBy(app: Application): string | undefined {
  const base = safeURL(annotation(app, '', 'managed-by-url'));
  if (!base) return undefined;
  const { namespace, name } = app.metadata;
  return `${base.replace(/\/+$/, '')}/applications/${encodeURIComponent(namespace ?? 'argocd')}/${encodeURIComponent(name)}`;
}

export interface ExternalLink {
  title: string;
  url: string;
}

/** Links of the application's summary, each "title|URL" or a URL. */
export function externalLinks(app: Application): ExternalLink[] {
  const out: ExternalLink[] = [];
  for (const text of app.status?.summary?.externalURLs ?? []) {
    const at = text.indexOf('|');
    const url = safeURL(at < 0 ? text : text.slice(at + 1));
    if (url)
      out.push({ title: (at > 0 && text.slice(0, at)) || url.replace(/^https?:\/\//, '').replace(/\/$/, ''), url });
  }
  return out;
}

/** Links of one object. */
export function linksOf(node: Node): ExternalLink[] {
  return (node.links ?? []).flatMap((l) => {
    const url = safeURL(l.url);
    return url ? [{ title: l.title || url, url }] : [];
  });
}

/** Pods by what people sort them by, in order of the groups' names. */
export function podGroups(nodes: Node[], sort: PodSort): [string, Node[]][] {
  const byId = new Map(nodes.map((n) => [n.uid, n]));
  const title = (n: Node | undefined) => (n ? `${n.kind} ${n.name}` : t('no owner'));
  const groups = new Map<string, Node[]>();
  for (const pod of nodes) {
    if (pod.kind !== 'Pod' || pod.group !== '') continue;
    let group = pod.info?.find((i) => i.name === 'node')?.value ?? t('not on a node');
    if (sort !== 'node') {
      let owner = byId.get(pod.parent ?? '');
      for (let i = 0; sort === 'topLevelResource' && owner?.parent && i < 20; i++)
        owner = byId.get(owner.parent) ?? owner;
      group = title(owner);
    }
    groups.set(group, [...(groups.get(group) ?? []), pod]);
  }
  return [...groups].sort(([a], [b]) => a.localeCompare(b));
}

const networkKinds = new Set([
  'Ingress',
  'Service',
  'EndpointSlice',
  'Endpoints',
  'Gateway',
  'HTTPRoute',
  'GRPCRoute',
  'NetworkPolicy',
]);

/** What leads traffic to the application. */
export function networkNodes(nodes: Node[]): Node[] {
  return nodes.filter((n) => networkKinds.has(n.kind) && !n.orphaned);
}
