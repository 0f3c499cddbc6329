/** What the keyboard can go to in a tree, in the order from top to bottom. */
export interface Stop {
  id: string;
  parent: string;
  /** Whether it hides what is below it; undefined: nothing is. */
  open?: boolean | undefined;
}

/** What a key does: it goes to another stop, or opens or closes this one. */
export type Move = { to: string } | { toggle: string };

/** What an arrow, Home or End does at a stop, as in any tree; undefined: nothing. */
export function moveOf(stops: readonly Stop[], id: string, key: string): Move | undefined {
  const at = stops.findIndex((s) => s.id === id);
  const here = stops[at];
  if (!here) return undefined;
  const to = (stop: Stop | undefined): Move | undefined => (stop && stop.id !== id ? { to: stop.id } : undefined);
  switch (key) {
    case 'ArrowDown':
      return to(stops[at + 1]);
    case 'ArrowUp':
      return to(stops[at - 1]);
    case 'Home':
      return to(stops[0]);
    case 'End':
      return to(stops.at(-1));
    case 'ArrowRight':
      return here.open === false ? { toggle: id } : to(stops.find((s) => s.parent === id));
    case 'ArrowLeft':
      return here.open ? { toggle: id } : to(stops.find((s) => s.id === here.parent));
    default:
      return undefined;
  }
}
