import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';

// Vitest runs in the folder web, and jsdom leaves import.meta.url without a path.
const built = join(process.cwd(), 'dist');

/** The most bytes of code and styles, each file compressed, that the first page may need. */
const budget = 400_000;

/** The files that a page names, and their compressed sizes. */
function named(page: string): { file: string; bytes: number }[] {
  const files = [...page.matchAll(/(?:src|href)="\.\/(assets\/[^"]+\.(?:js|css))"/g)].map((m) => m[1] ?? '');
  return files.map((file) => ({ file, bytes: gzipSync(readFileSync(join(built, file)), { level: 9 }).length }));
}

test('the code and the styles of the first page stay within their budget', () => {
  const page = join(built, 'index.html');
  expect(existsSync(page), 'the console is not built: make build').toBe(true);
  const files = named(readFileSync(page, 'utf8'));
  expect(files.filter((f) => f.file.endsWith('.js')).length).toBeGreaterThan(0);
  expect(files.filter((f) => f.file.endsWith('.css')).length).toBeGreaterThan(0);
  const total = files.reduce((sum, f) => sum + f.bytes, 0);
  const list = files.map((f) => `${f.bytes} ${f.file}`).join('\n');
  expect(total, `${total} bytes are more than ${budget}:\n${list}`).toBeLessThanOrEqual(budget);
});
