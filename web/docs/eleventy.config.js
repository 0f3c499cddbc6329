// Builds the documentation, which the hub serves at /docs/: a page for each file
// of docs/ that navigation.json names, in its order. Addresses have no trailing
// slash, and all links are relative, so that they work under any path that the
// hub is served at.
import { readdirSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';

const sections = JSON.parse(readFileSync(new URL('./navigation.json', import.meta.url), 'utf8'));
for (const section of sections) {
  if (section.cli) {
    const names = readdirSync(new URL('../../docs/cli', import.meta.url)).filter((name) => name !== 'index.md');
    section.pages.push('cli/index.md', ...names.sort().map((name) => `cli/${name}`));
  }
}
const order = sections.flatMap((section) => section.pages);
// The page of the API is not made here: the hub makes it from its own document.
const served = ['api'];

/** The address of a file, seen from /docs/: "cli/index.md" is at "cli". */
const addressOf = (file) => file.replace(/\.md$/, '').replace(/(^|\/)index$/, '');

/** A link from the page of one file to another address. */
function relative(from, to) {
  const at = posix.dirname(`/docs/${addressOf(from) || 'index'}`);
  return posix.relative(at, `/docs/${to}`) || (to === '' ? './' : `../${posix.basename(to)}`);
}

/** The name that navigation.json has for a page of Eleventy. */
const fileOf = (page) => posix.relative('../docs', posix.normalize(page.inputPath));

/** Links to files that are no pages, such as decisions, become plain text. */
function links(md) {
  md.core.ruler.push('links', (state) => {
    const here = fileOf(state.env.page);
    for (const { children } of state.tokens) {
      let dropped = false;
      for (const token of children ?? []) {
        if (token.type === 'link_close' && dropped) {
          dropped = false;
          hide(token);
        }
        if (token.type !== 'link_open') continue;
        const [path, anchor] = (token.attrGet('href') ?? '').split('#');
        if (path === '' || /^[a-z]+:/.test(path)) continue;
        const file = posix.join(posix.dirname(here), path);
        if (order.includes(file) || served.includes(file)) {
          token.attrSet('href', relative(here, addressOf(file)) + (anchor ? `#${anchor}` : ''));
        } else {
          dropped = true;
          hide(token);
        }
      }
    }
  });
}

function hide(token) {
  Object.assign(token, { type: 'text', tag: '', nesting: 0, content: '' });
}

/** Images lie beside the pages, under the same relative address. */
function images(md) {
  md.core.ruler.push('images', (state) => {
    const here = fileOf(state.env.page);
    for (const { children } of state.tokens) {
      for (const token of children ?? []) {
        const source = token.type === 'image' && token.attrGet('src');
        if (source) token.attrSet('src', relative(here, posix.join(posix.dirname(here), source)));
      }
    }
  });
}

/** The anchor of a heading, as Git hosts make it. */
const slug = (text) =>
  text
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replace(/\s/g, '-');

function headings(md) {
  md.core.ruler.push('headings', (state) => {
    const seen = new Map();
    state.tokens.forEach((token, i) => {
      if (token.type !== 'heading_open') return;
      const words = state.tokens[i + 1].children.filter((t) => t.type === 'text' || t.type === 'code_inline');
      const base = slug(words.map((t) => t.content).join(''));
      const n = seen.get(base) ?? 0;
      seen.set(base, n + 1);
      token.attrSet('id', n ? `${base}-${n}` : base);
    });
  });
}

/** What is wide scrolls by itself, also by keyboard. */
function tables(md) {
  for (const rule of ['fence', 'code_block']) {
    const render = md.renderer.rules[rule];
    md.renderer.rules[rule] = (...given) => render(...given).replace(/^<pre/, '<pre tabindex="0"');
  }
  md.renderer.rules.table_open = () => '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n';
  md.renderer.rules.table_close = () => '</table></div>\n';
}

const letters = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&amp;': '&' };
const plain = (html) =>
  html
    .replace(/<[^>]*>/g, ' ')
    .replace(/&(lt|gt|quot|amp);/g, (x) => letters[x])
    .replace(/\s+/g, ' ')
    .trim();

const secondLevel = /<h2 id="([^"]*)"[^>]*>(.*?)<\/h2>/;

export default function (config) {
  config.setInputDirectory('../docs');
  config.setIncludesDirectory('../web/docs/layouts');
  config.setOutputDirectory('dist/docs');
  config.setTemplateFormats(['md', '11ty.js']);
  config.setUseGitIgnore(false);
  config.addPreprocessor('pages', 'md', (data) => (order.includes(fileOf(data.page)) ? undefined : false));
  config.addGlobalData('layout', 'page.njk');
  config.addGlobalData('sections', sections);
  config.addGlobalData('eleventyComputed', {
    file: (data) => fileOf(data.page),
    title: (data) => /^# (.*)$/m.exec(data.page.rawInput)?.[1].replace(/[`\\]/g, ''),
    permalink: (data) => data.output ?? `${addressOf(fileOf(data.page)) || 'index'}.html`,
  });
  config.amendLibrary('md', (md) => {
    md.use(links).use(images).use(headings).use(tables);
  });
  config.addFilter('linkFrom', (to, from) => relative(from, to));
  config.addFilter('address', addressOf);
  config.addFilter('titled', (file, all) => all.find((p) => p.data.file === file)?.data.title ?? file);
  config.addFilter('beside', (file, step) => order[order.indexOf(file) + step]);
  config.addFilter('outline', (html) =>
    [...html.matchAll(new RegExp(secondLevel, 'g'))].map(([, id, text]) => ({ id, text: plain(text) })),
  );
  config.addPassthroughCopy({
    'docs/site.css': 'assets/site.css',
    'docs/search.js': 'assets/search.js',
    'node_modules/minisearch/dist/es/index.js': 'assets/minisearch.js',
    'public/favicon.svg': 'assets/favicon.svg',
    'node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2': 'assets/inter.woff2',
    'node_modules/@fontsource-variable/jetbrains-mono/files/jetbrains-mono-latin-wght-normal.woff2':
      'assets/mono.woff2',
    '../docs/images': 'images',
    '../docs/screenshots/*.png': 'screenshots', // the sheets of all pages stay in the repository
  });
  // What the search finds: each part under a heading of the second level.
  config.addTemplate('search.11ty.js', {
    data: {
      layout: false,
      output: 'assets/search.json',
      eleventyExcludeFromCollections: true,
      eleventyImport: { collections: ['all'] },
    },
    render: ({ collections }) =>
      JSON.stringify(
        collections.all.flatMap(({ data, content }) =>
          content.split(/(?=<h2 )/).map((html) => {
            const [, anchor = '', heading = ''] = secondLevel.exec(html) ?? [];
            return {
              id: `${addressOf(data.file)}#${anchor}`,
              page: data.title,
              part: plain(heading),
              text: plain(html),
            };
          }),
        ),
      ),
  });
}
