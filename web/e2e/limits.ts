/** How long one act of a spec may take, in milliseconds: the limit of a failure, far beyond a busy machine. */
export const patience = 120_000;
