import type { Node } from '../../../api/client';

/** What names an object of an application: the address of its panel has it. */
export interface Reference {
  group: string;
  kind: string;
  namespace: string;
  name: string;
}

/** The object of a node, as the address writes it. */
export function referenceOf(node: Pick<Node, 'group' | 'kind' | 'namespace' | 'name'>): string {
  return [node.group, node.kind, node.namespace ?? '', node.name].join('/');
}

/** Reads what referenceOf wrote; undefined: it names no object. */
export function parseReference(text: string | undefined): Reference | undefined {
  const [group, kind, namespace, name, ...more] = (text ?? '').split('/');
  if (group === undefined || !kind || namespace === undefined || !name || more.length > 0) return undefined;
  return { group, kind, namespace, name };
}

/** The node of an object, if the tree has it. */
export function nodeOf(nodes: Node[], ref: Reference): Node | undefined {
  return nodes.find(
    (n) => n.group === ref.group && n.kind === ref.kind && (n.namespace ?? '') === ref.namespace && n.name === ref.name,
  );
}

/** What owns a node, the nearest first, and what it owns itself. */
export function related(nodes: Node[], node: Node): { owners: Node[]; children: Node[] } {
  const byId = new Map(nodes.map((n) => [n.uid ?? '', n]));
  const owners: Node[] = [];
  for (let at = byId.get(node.parent ?? '-'); at && !owners.includes(at); at = byId.get(at.parent ?? '-')) {
    owners.push(at);
  }
  return { owners, children: nodes.filter((n) => n.parent !== undefined && n.parent !== '' && n.parent === node.uid) };
}
