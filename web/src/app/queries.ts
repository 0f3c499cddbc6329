import { notifications } from '@mantine/notifications';
import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query';
import { signedOut, words, worthRetrying } from '../api/errors';

declare module '@tanstack/react-query' {
  interface Register {
    mutationMeta: {
      /** The form that starts the mutation shows its error itself. */
      inline?: boolean;
    };
  }
}

/**
 * The client of the console. It is the one place that handles errors which no
 * component shows: those of mutations become a notification, and a query that
 * the hub refuses because nobody is signed in calls onSignedOut.
 */
export function makeQueryClient(onSignedOut: () => void): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (signedOut(error)) onSignedOut();
      },
    }),
    mutationCache: new MutationCache({
      onError: (error, _variables, _result, mutation) => {
        if (mutation.meta?.inline) return;
        const said = words(error);
        notifications.show({ color: 'red', title: said.title, message: said.fix ?? '' });
      },
    }),
    defaultOptions: {
      queries: { retry: (count, error) => worthRetrying(error) && count < 2, refetchOnWindowFocus: false },
    },
  });
}
