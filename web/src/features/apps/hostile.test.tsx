import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MantineProvider } from '@mantine/core';
import { cleanup, render } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Application, Node } from '../../api/client';
import { linksOf, safeURL } from './annotations';
import { NodeLinks } from './links';
import { ErrorIcon, NoticeBanner } from './notice';

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

/** Texts that would run as markup. A tenant, a repository, an object or an agent may write them anywhere. */
const payloads = [
  '<script>window.hit=1</script>',
  '<img src=x onerror="window.hit=1">',
  '<svg onload="window.hit=1">',
  '"><iframe srcdoc="<script>parent.hit=1</script>">',
  '<a href="javascript:window.hit=1">x</a>',
  '</title><script>window.hit=1</script>',
  '{{constructor.constructor("window.hit=1")()}}',
  '<style>*{background:url("javascript:window.hit=1")}</style>',
  '\u202e<script>window.hit=1</script>',
];

/** Addresses that no link may lead to. */
const addresses = [
  'javascript:alert(1)',
  'JaVaScRiPt:alert(1)',
  ' javascript:alert(1)',
  'java\tscript:alert(1)',
  'java\nscript:alert(1)',
  '\u0001javascript:alert(1)',
  'data:text/html,<script>alert(1)</script>',
  'vbscript:msgbox(1)',
  '//evil.example.com',
  '\\\\evil.example.com',
  '/applications',
  'applications',
  'file:///etc/passwd',
  'blob:https://example.com/x',
  'https://user:password@evil.example.com',
  'http:evil.example.com',
  'https://',
];

test('SEC-H1 texts of others are shown as texts: no element comes from them and nothing runs', () => {
  for (const payload of payloads) {
    const app: Application = {
      apiVersion: 'argoproj.io/v1alpha1',
      kind: 'Application',
      metadata: {
        name: payload,
        annotations: { 'notice.argocd.argoproj.io/content': payload, 'notice.argocd.argoproj.io/icon': payload },
      },
      spec: {},
      status: { conditions: [{ type: 'SyncError', message: payload }] } as NonNullable<Application['status']>,
    };
    const node: Node = { group: '', version: 'v1', kind: payload, name: payload, managed: true };
    const { container } = render(
      <MantineProvider env="test">
        <NoticeBanner app={app} />
        <ErrorIcon app={app} />
        <NodeLinks node={{ ...node, links: [{ title: payload, url: 'https://docs.example.com' }] }} />
      </MantineProvider>,
    );
    const body = container.ownerDocument.body;
    expect(body.querySelector('script, iframe, img[onerror], svg[onload], a[href^="javascript" i]')).toBeNull();
    expect(body.textContent).toContain(payload);
    expect((window as { hit?: number }).hit).toBeUndefined();
    cleanup();
  }
});

test('SEC-H2 an address of another scheme, relative or with a password is no link', () => {
  for (const url of addresses) {
    expect(safeURL(url), url).toBeUndefined();
    const node: Node = { group: '', version: 'v1', kind: 'Service', name: 'a', managed: true };
    expect(linksOf({ ...node, links: [{ title: 'x', url }] }), url).toHaveLength(0);
  }
  expect(safeURL('https://docs.example.com/x')).toBe('https://docs.example.com/x');
});

// Vitest runs in the folder web.
const source = join(process.cwd(), 'src');
const sources = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter(
  (f) => /\.tsx?$/.test(f) && !/\.(test|gen)\.tsx?$/.test(f),
);

/** Ways by which a text becomes markup or code. */
const markup =
  /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|srcDoc/;

test('SEC-H1 no source of the console makes markup or code of a text', () => {
  expect(markup.test('<div dangerouslySetInnerHTML={{ __html: x }} />')).toBe(true);
  const found = sources.filter((f) => markup.test(readFileSync(join(source, f), 'utf8')));
  expect(found).toEqual([]);
});

/**
 * Each place where an address of a link is computed. The values come from safeURL, are paths of the hub, or are
 * settings and declared links, of which the hub answers those of http and https alone.
 */
const places: Record<string, number> = {
  'app/notices.tsx': 4, // one of them a path of the hub
  'features/access/sign-in-test.tsx': 1, // webAddress
  'features/access/sign-in.tsx': 1,
  'features/apps/app-page.tsx': 2,
  'features/apps/declared-links.tsx': 1, // safeURL, and the hub has checked it
  'features/apps/edit/settings-tab.tsx': 1,
  'features/apps/links.tsx': 1,
  'features/apps/logs/viewer.tsx': 1,
  'features/apps/notice.tsx': 2,
  'features/apps/source.tsx': 1,
  'features/login/providers.tsx': 1,
  'features/projects/project-page.tsx': 1,
  'ui/states.tsx': 1, // a path of the hub
};

test('SEC-H2 each link whose address is computed is in a list that was looked at', () => {
  const found: Record<string, number> = {};
  for (const file of sources) {
    const n = readFileSync(join(source, file), 'utf8').match(/\bhref=\{/g)?.length ?? 0;
    if (n > 0) found[file] = n;
  }
  expect(found).toEqual(places);
});
