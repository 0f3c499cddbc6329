import { MantineProvider } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Application, Node } from '../../api/client';
import { NodeLinks } from './links';
import { ErrorIcon, NoticeBanner, NoticeIcon } from './notice';

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const app = (parts: Record<string, string>): Application => ({
  apiVersion: 'argoproj.io/v1alpha1',
  kind: 'Application',
  metadata: {
    name: 'shop',
    annotations: Object.fromEntries(Object.entries(parts).map(([k, v]) => [`notice.argocd.argoproj.io/${k}`, v])),
  },
  spec: {},
});

function show(what: React.ReactNode) {
  render(<MantineProvider env="test">{what}</MantineProvider>);
}

test('APP-26 a notice is shown as text, and can be put away', () => {
  show(<NoticeBanner app={app({ content: '<b>frozen</b>', severity: 'warning' })} />);
  screen.getByText('<b>frozen</b>');
  fireEvent.click(screen.getByRole('button', { name: 'Put the notice away' }));
  expect(screen.queryByText('<b>frozen</b>')).toBeNull();
});

test('APP-26 a permanent one stays, and one for the icon alone is no banner', () => {
  show(<NoticeBanner app={app({ content: 'frozen', permanent: 'true', url: 'https://status.example.com' })} />);
  expect(screen.queryByRole('button')).toBeNull();
  expect(screen.getByRole('link').getAttribute('href')).toBe('https://status.example.com/');
  cleanup();
  show(<NoticeBanner app={app({ content: 'frozen', scope: 'icon' })} />);
  expect(screen.queryByText('frozen')).toBeNull();
});

test('APP-26 lists show the icon unless the notice is a banner alone', () => {
  show(<NoticeIcon app={app({ content: 'frozen' })} />);
  screen.getByRole('img', { name: 'Notice: frozen' });
  cleanup();
  show(<NoticeIcon app={app({ content: 'frozen', scope: 'banner' })} />);
  expect(screen.queryByRole('img')).toBeNull();
});

test('APP-17 lists show what is wrong with an application though it is in sync', () => {
  const shop = app({});
  shop.status = {
    sync: { status: 'Synced' },
    conditions: [
      { type: 'ComparisonError', message: 'unexpected {{end}}' },
      { type: 'OrphanedResourceWarning', message: '3 objects' },
    ],
  };
  show(<ErrorIcon app={shop} />);
  screen.getByRole('img', { name: 'The desired state cannot be worked out: unexpected {{end}}' });
  cleanup();
  shop.status.conditions?.shift();
  show(<ErrorIcon app={shop} />);
  expect(screen.queryByRole('img')).toBeNull();
});

test('APP-28 links of an object open beside the console and cannot reach it', () => {
  const node: Node = { group: '', version: 'v1', kind: 'Service', name: 'a', managed: true };
  show(
    <NodeLinks
      node={{ ...node, links: [{ title: 'Docs', url: 'https://docs.example.com' }, { url: 'javascript:x' }] }}
    />,
  );
  const links = screen.getAllByRole('link');
  expect(links).toHaveLength(1);
  expect(links[0]?.getAttribute('rel')).toBe('noopener noreferrer');
});
