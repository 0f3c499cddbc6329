/** What the address of the list of ApplicationSets has. */
export interface ListSearch {
  q?: string | undefined;
  project?: string | undefined;
  health?: string | undefined;
  view?: string | undefined;
}

/** What the address of one ApplicationSet has. */
export interface SetSearch {
  tab?: string | undefined;
  ask?: string | undefined;
  view?: string | undefined;
  find?: string | undefined;
  show?: string | undefined;
}
