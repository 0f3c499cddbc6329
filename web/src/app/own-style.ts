import { useQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import { noticeQueries } from '../api/notices';
import { under } from '../api/root';

/** Where the hub serves style sheets of its operator; nothing of a tenant is there. */
const ours = /^\/custom\/[A-Za-z0-9_-][A-Za-z0-9._-]*\.css$/;

/** The address if it is a style sheet of the hub's operator. */
export function ownStyle(address: string | undefined): string | undefined {
  return address && ours.test(address) ? under(`/${address.slice(1)}`) : undefined;
}

/** Loads the style sheet that the tenant has chosen among those of the hub's operator. */
export function useOwnStyle() {
  const address = ownStyle(useQuery(noticeQueries.client()).data?.styleUrl);
  useEffect(() => {
    if (!address) return;
    const link = document.createElement('link');
    link.rel = 'stylesheet';
    link.href = address;
    document.head.append(link);
    return () => link.remove();
  }, [address]);
}
