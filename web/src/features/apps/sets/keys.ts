/** A set by its namespace and name. */
export interface SetKey {
  namespace: string;
  name: string;
}

export const root = ['applicationsets'];
export const oneOf = (key: SetKey) => [...root, 'one', key.namespace, key.name];

/** Which queries something makes old. */
export const setFilters = {
  each: () => ({ queryKey: root }),
  lists: () => ({ queryKey: [...root, 'list'] }),
  one: (key: SetKey) => ({ queryKey: oneOf(key) }),
  /** Of sets that are shown one by one, whose applications may have changed. */
  shown: () => ({ queryKey: [...root, 'one'] }),
};
