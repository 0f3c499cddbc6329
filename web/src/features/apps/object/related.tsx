import type { Node } from '../../../api/client';
import { number, t } from '../../../texts';
import { HealthBadge } from '../../../ui/badges';
import { Nothing } from '../../../ui/states';
import { nodeId } from '../model';

/** So many children are listed; the tree has all. */
const listed = 200;

interface Props {
  owners: Node[];
  items: Node[];
  open: (node: Node) => void;
}

/** What owns an object, and what it owns. */
export function Related({ owners, items, open }: Props) {
  if (owners.length + items.length === 0) return <Nothing title={t('It owns nothing, and nothing owns it.')} />;
  return (
    <div className="object-section">
      <Objects title={t('Owned by')} nodes={owners} open={open} />
      <Objects title={t('Owns')} nodes={items} open={open} />
    </div>
  );
}

function Objects({ title, nodes, open }: { title: string; nodes: Node[]; open: (node: Node) => void }) {
  if (nodes.length === 0) return null;
  return (
    <section aria-label={title}>
      <h4>
        {title} {nodes.length}
      </h4>
      <ul className="object-list">
        {nodes.slice(0, listed).map((n) => (
          <li key={nodeId(n)}>
            <span className="kind">{n.kind}</span>
            <button type="button" className="name plain" onClick={() => open(n)}>
              {n.name}
            </button>
            {n.health && <HealthBadge status={n.health} cause={n.message} weight="quiet" />}
          </li>
        ))}
      </ul>
      {nodes.length > listed && (
        <p className="quiet">{t('{{n}} more are in the tree.', { n: number(nodes.length - listed) })}</p>
      )}
    </section>
  );
}
