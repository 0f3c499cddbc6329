// The search of the documentation: an index that is loaded at the first
// keystroke, and a list that the keyboard walks.
import MiniSearch from './minisearch.js';

const root = document.body.dataset.root;
const box = document.querySelector('.search');
const input = document.querySelector('#q');
const list = document.querySelector('#found');
const pages = document.querySelector('nav details');
box.hidden = false;
if (matchMedia('(max-width: 760px)').matches) pages.open = false;

let index;
let chosen = -1;

async function load() {
  const answer = await fetch(`${root}/search.json`);
  if (!answer.ok) throw new Error(`the index of the search answers ${answer.status}`);
  const parts = await answer.json();
  const made = new MiniSearch({ fields: ['part', 'page', 'text'], storeFields: ['page', 'part'] });
  made.addAll(parts);
  return made;
}

function choose(n) {
  const items = [...list.children];
  chosen = items.length ? (n + items.length) % items.length : -1;
  items.forEach((item, i) => {
    item.setAttribute('aria-selected', String(i === chosen));
  });
  if (chosen >= 0) {
    input.setAttribute('aria-activedescendant', items[chosen].id);
    items[chosen].scrollIntoView({ block: 'nearest' });
  } else {
    input.removeAttribute('aria-activedescendant');
  }
}

/** One line that is no page. */
function say(text) {
  const line = document.createElement('div');
  line.setAttribute('role', 'option');
  line.setAttribute('aria-disabled', 'true');
  line.textContent = text;
  list.replaceChildren(line);
}

function show(hits) {
  list.replaceChildren(
    ...hits.map((hit, i) => {
      const a = document.createElement('a');
      a.id = `found-${i}`;
      a.setAttribute('role', 'option');
      const [address, anchor] = hit.id.split('#');
      a.href = `${root}/../${address}${anchor ? `#${anchor}` : ''}`;
      a.tabIndex = -1;
      a.textContent = hit.part || hit.page;
      const small = document.createElement('small');
      small.textContent = hit.page;
      a.append(small);
      return a;
    }),
  );
  if (hits.length === 0 && input.value.trim() !== '') {
    say('Nothing was found.');
  }
  list.hidden = input.value.trim() === '';
  input.setAttribute('aria-expanded', String(!list.hidden));
  choose(0);
}

input.addEventListener('input', async () => {
  try {
    index ??= load();
    const made = await index;
    const options = { prefix: true, fuzzy: 0.15, combineWith: 'AND', boost: { part: 4, page: 2 } };
    show(made.search(input.value, options).slice(0, 12));
  } catch (error) {
    index = undefined;
    say(`The search does not work: ${error.message}`);
    list.hidden = false;
  }
});
input.addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') choose(chosen + 1);
  else if (event.key === 'ArrowUp') choose(chosen - 1);
  else if (event.key === 'Enter') list.children[chosen]?.click();
  else if (event.key === 'Escape') {
    input.value = '';
    show([]);
    return;
  } else return;
  event.preventDefault();
});
input.addEventListener('blur', () => setTimeout(() => show([]), 200));
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  }
});
