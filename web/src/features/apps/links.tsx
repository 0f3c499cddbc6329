import { Anchor } from '@mantine/core';
import type { Node } from '../../api/client';
import { linksOf } from './annotations';

/** Links of an object to where people reach it. */
export function NodeLinks({ node }: { node: Node }) {
  return linksOf(node).map((l) => (
    <Anchor key={l.title + l.url} href={l.url} target="_blank" rel="noopener noreferrer" size="xs" mr="xs">
      {l.title}
    </Anchor>
  ));
}
