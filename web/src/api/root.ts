/** The path that the hub has in front of all its addresses: empty, or such as /capstan. */
export const root = document.querySelector<HTMLMetaElement>('meta[name="capstan-root"]')?.content ?? '';

/** An address of the hub, given as its own path such as /docs, as a browser needs it. */
export const under = (path: `/${string}`): string => root + path;
