// The pages of the documentation as they were built: "make build" makes them.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { describe, expect, test } from 'vitest';

const folder = join(import.meta.dirname, '../dist/docs');
const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.html'))
  .sort();

/** The file that the hub serves at an address, or undefined. */
function fileAt(address: string): string | undefined {
  if (address === '/docs/') return 'index.html';
  const name = address.slice('/docs/'.length);
  return [name, `${name}.html`].find((file) => existsSync(join(folder, file)) && /\.\w+$/.test(file));
}

const addressOf = (file: string) => `/docs/${file.replace(/\.html$/, '').replace(/^index$/, '')}`;
const read = (file: string) => new DOMParser().parseFromString(readFileSync(join(folder, file), 'utf8'), 'text/html');
const documents = new Map(pages.map((file) => [file, read(file)]));

describe('the documentation', () => {
  test('UX-API-8 has a page for each part that a newcomer, a user and an operator need', () => {
    for (const page of [
      'index',
      'quick-start',
      'concepts',
      'tutorial',
      'troubleshooting',
      'security',
      'operations',
      'migration',
      'errors',
      'cli',
      'cli/app',
    ]) {
      expect(pages).toContain(`${page}.html`);
    }
  });

  test('UX-API-8 every page of docs/ has its place in the navigation, and every place a page', () => {
    const docs = join(import.meta.dirname, '../../docs');
    // For those who develop Capstan; the site is for those who use it.
    const apart = /^(?:decisions\/|screenshots\/|testing\.md$|robustness\.md$)/;
    const written = readdirSync(docs, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.md'));
    const sections = JSON.parse(readFileSync(join(import.meta.dirname, 'navigation.json'), 'utf8')) as {
      pages: string[];
      cli?: boolean;
    }[];
    expect(sections.some((s) => s.cli)).toBe(true); // it adds all pages of docs/cli
    const placed = sections.flatMap((s) => s.pages);
    const expected = written.filter((file) => !apart.test(file) && !file.startsWith('cli/')).sort();
    expect(placed.toSorted()).toEqual(expected);
    for (const file of written.filter((f) => !apart.test(f))) {
      const page = file.replace(/\.md$/, '.html').replace(/^cli\/index\.html$/, 'cli.html');
      expect(pages, `${file} is written, but not built`).toContain(page);
    }
  });

  test('UX-API-8 every link leads to a page, and every anchor to a heading', () => {
    const broken: string[] = [];
    for (const [file, doc] of documents) {
      for (const a of doc.querySelectorAll('a[href]')) {
        const url = new URL(a.getAttribute('href') ?? '', `http://hub${addressOf(file)}`);
        if (url.host !== 'hub' || url.pathname === '/' || url.pathname === '/docs/api') continue;
        const target = url.pathname.startsWith('/docs/') ? fileAt(url.pathname) : undefined;
        const there =
          target && (url.hash === '' || documents.get(target)?.getElementById(decodeURIComponent(url.hash.slice(1))));
        if (!there) broken.push(`${file}: ${a.getAttribute('href')}`);
      }
    }
    expect(broken).toEqual([]);
  });

  test('SEC-H5 nothing is loaded from another host, and nothing is inline', () => {
    for (const [file, doc] of documents) {
      for (const part of doc.querySelectorAll('[src], link[href]')) {
        const address = part.getAttribute('src') ?? part.getAttribute('href') ?? '';
        expect(address, file).not.toMatch(/^([a-z]+:)?\/\//);
        const path = new URL(address, `http://hub${addressOf(file)}`).pathname;
        expect(existsSync(join(folder, posix.relative('/docs', path))), `${file}: ${address}`).toBe(true);
      }
      expect(doc.querySelectorAll('script:not([src]), style, [style], [onclick]').length, file).toBe(0);
    }
  });

  test('UX-A11-1 each page has one title, one main heading, and says where one is', () => {
    const titles = new Set<string>();
    for (const [file, doc] of documents) {
      expect(doc.querySelectorAll('h1').length, file).toBe(1);
      expect(doc.querySelectorAll('nav [aria-current]').length, file).toBe(1);
      expect(titles.has(doc.title), doc.title).toBe(false);
      titles.add(doc.title);
    }
  });

  test('UX-API-8 the search has each part of each page', () => {
    const parts = JSON.parse(readFileSync(join(folder, 'assets/search.json'), 'utf8')) as {
      id: string;
      page: string;
      text: string;
    }[];
    const found = new Set(parts.map((p) => `${p.id.split('#')[0] || 'index'}.html`));
    expect(pages.filter((file) => !found.has(file))).toEqual([]);
    for (const part of parts) {
      const [address = '', anchor = ''] = part.id.split('#');
      if (anchor) expect(documents.get(`${address || 'index'}.html`)?.getElementById(anchor), part.id).toBeTruthy();
    }
  });
});
