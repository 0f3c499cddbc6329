import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, normalize } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';

// Vitest runs in the folder web, and jsdom leaves import.meta.url without a path.
const source = join(process.cwd(), 'src');

/** Which folders a folder may import, besides itself. A feature is a folder of its own. */
const allowed: Record<string, readonly string[]> = {
  app: ['features', 'ui', 'api', 'graph', 'format', 'texts'],
  features: ['ui', 'api', 'graph', 'format', 'texts'],
  ui: ['api', 'graph', 'format', 'texts'],
  api: ['texts'],
  graph: [],
  format: ['texts'],
  texts: [],
};

/** The folder of a file below src, and of a feature its name. */
const placeOf = (file: string) => {
  const [folder = '', name = ''] = file.split('/');
  return { folder, room: folder === 'features' ? `features/${name}` : folder };
};

/** Says why a file, named from src, may not import a path; empty if it may. */
function violation(file: string, path: string): string {
  if (!path.startsWith('.')) return '';
  const from = placeOf(file);
  const to = placeOf(normalize(join(dirname(file), path)));
  if (from.room === to.room || allowed[from.folder]?.includes(to.folder)) return '';
  return `${file} imports ${path}: ${from.room} may not import ${to.room}`;
}

const importsOf = (text: string) => ts.preProcessFile(text, true, true).importedFiles.map((f) => f.fileName);

const sources = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((f) => /\.tsx?$/.test(f));

test('every folder imports only what it may', () => {
  const found = sources.flatMap((file) =>
    importsOf(readFileSync(join(source, file), 'utf8'))
      .map((path) => violation(file, path))
      .filter(Boolean),
  );
  expect(found).toEqual([]);
  expect(sources.length).toBeGreaterThan(40);
});

test('no component calls the API or names a key itself', () => {
  const components = sources.filter((f) => f.endsWith('.tsx') && !f.endsWith('.test.tsx'));
  const found = components.filter((f) =>
    /\bqueryKey\b|\bmutationFn\b|\bapi\.[A-Z]+\(/.test(readFileSync(join(source, f), 'utf8')),
  );
  expect(found).toEqual([]);
});

// The paths of the API's client get the root by themselves, as the router's addresses do.
const rooted = /(?:\bapi\.[A-Z]+|\bunder)\(\s*$/;

/** Addresses of the hub in a text that lack the path that the hub may have in front of all. */
const bare = (text: string) => [
  ...[...text.matchAll(/['"`]\/(?:api|auth|docs|openapi|scim|terminal)\b/g)]
    .filter((found) => !rooted.test(text.slice(0, found.index)))
    .map((found) => found[0]),
  ...(text.match(
    /\b(?:href|src|action)=(?:\{\s*)?['"`]\/|\b(?:new (?:EventSource|WebSocket)|fetch)\(\s*['"`]|\blocation\.(?:origin|host)\b/g,
  ) ?? []),
];

test('API-01 every address of the hub has its root in front', () => {
  const found = sources
    .filter((f) => !/\.test\.tsx?$|^api\/(schema\.gen|client)\.ts$/.test(f))
    .flatMap((f) => bare(readFileSync(join(source, f), 'utf8')).map((x) => `${f}: ${x}`));
  expect(found).toEqual([]);
  for (const text of [
    `<a href="/docs">`,
    '<a href={`/login?x`}>',
    "fetch('/x')",
    'new EventSource(`/api/v1/stream`)',
    'const a = `/api/v1/x`',
    '"wss://" + location.host',
  ]) {
    expect(bare(text), text).not.toEqual([]);
  }
  expect(bare("api.GET(\n  '/api/v1/me'); under('/docs'); <Link to=\"/clusters\">")).toEqual([]);
});

test('every folder is known to this test', () => {
  const folders = readdirSync(source, { withFileTypes: true }).filter((e) => e.isDirectory());
  expect(folders.map((e) => e.name).sort()).toEqual(Object.keys(allowed).sort());
});

const forbidden: [file: string, path: string][] = [
  ['features/apps/x.tsx', '../projects/api'],
  ['features/apps/x.tsx', '../../features/projects/api'],
  ['features/apps/x.tsx', '../../app/live'],
  ['features/apps/logs/x.tsx', '../../projects/api'],
  ['features/apps/logs/x.tsx', '../../../features/projects/api'],
  ['features/apps/logs/x.tsx', '../../../app/live'],
  ['ui/x.tsx', '../features/apps/api'],
  ['ui/x.tsx', '../app/theme'],
  ['api/x.ts', '../ui/states'],
  ['api/x.ts', '../features/apps/api'],
  ['api/x.ts', '../app/queries'],
  ['format/x.ts', '../api/client'],
  ['graph/x.ts', '../ui/states'],
];
const permitted: [file: string, path: string][] = [
  ['app/x.tsx', '../features/apps/api'],
  ['features/apps/x.tsx', './api'],
  ['features/apps/x.tsx', '../../ui/states'],
  ['features/apps/x.tsx', '../../api/session'],
  ['features/apps/x.tsx', './logs/x'],
  ['features/apps/logs/x.tsx', '../api'],
  ['features/apps/logs/x.tsx', '../../../ui/states'],
  ['ui/x.tsx', '../api/session'],
  ['api/x.ts', './client'],
];

/** The ways to import something, as a module of its own each. */
const ways = (path: string) => [
  `import { a } from '${path}';\nexport const b = a;\n`,
  `import type { A } from '${path}';\nexport type B = A;\n`,
  `export const b = () => import('${path}');\n`,
  `export { a } from '${path}';\n`,
];

/** Says for each module whether Biome, with the configuration of the console, refuses its import. */
function lint(modules: { file: string; text: string }[]): boolean[] {
  const root = mkdtempSync(join(tmpdir(), 'boundaries-'));
  try {
    copyFileSync('biome.json', join(root, 'biome.json'));
    const paths = modules.map(({ file, text }, i) => {
      const path = join('src', dirname(file), `${i}-${basename(file)}`);
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
      return path;
    });
    const biome = join(process.cwd(), 'node_modules/.bin/biome');
    const run = spawnSync(biome, ['lint', '--reporter=github', '--max-diagnostics=none', '.'], {
      cwd: root,
      encoding: 'utf8',
    });
    const refused = run.stdout.split('\n').filter((line) => line.includes('lint/style/noRestrictedImports'));
    return paths.map((path) => refused.some((line) => line.includes(`/${path},`)));
  } finally {
    rmSync(root, { recursive: true });
  }
}

test('what a folder may not import is refused by this test and by the lint, in every way of writing it', () => {
  const modules = forbidden.flatMap(([file, path]) => ways(path).map((text) => ({ file, text })));
  const words = (of: (module: { file: string; text: string }, i: number) => boolean) =>
    modules.map((m, i) => `${m.file}: ${m.text}: ${of(m, i) ? 'refused' : 'let through'}`);
  const all = words(() => true);
  expect(words(({ file, text }) => importsOf(text).every((p) => violation(file, p)))).toEqual(all);
  const refused = lint(modules);
  expect(words((_, i) => refused[i] ?? false)).toEqual(all);
});

test('what a folder may import is refused by neither', () => {
  const modules = permitted.flatMap(([file, path]) => ways(path).map((text) => ({ file, text })));
  for (const { file, text } of modules) expect(importsOf(text).map((p) => violation(file, p))).toEqual(['']);
  expect(lint(modules)).toEqual(modules.map(() => false));
});
