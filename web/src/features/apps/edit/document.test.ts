import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { addSource, begin, fieldOf, lineOf, problemsOf, read, removeSource, write } from './document';
import { changesOf, merge, withValue } from './merge';

const written = `# who to ask: the shop team
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: web # as in Git
  namespace: argocd
spec:
  project: shop
  source:
    repoURL: https://git.example.com/shop.git
    path: apps/web
    targetRevision: main
    futureField: {kept: true}
  destination: {name: prod, namespace: web}
  syncPolicy:
    automated: {}
`;

describe('UI-04 UX-APP-12 form and YAML are the same text', () => {
  it('UX-APP-12(part) a field of the form keeps comments, unknown fields and the rest of the text', () => {
    const next = write(written, ['spec', 'source', 'path'], 'apps/next');
    expect(next).toBe(
      written
        .replace('apps/web', 'apps/next')
        .replace('{kept: true}', '{ kept: true }')
        .replace('{name: prod, namespace: web}', '{ name: prod, namespace: web }'),
    );
    expect(parse(write(next, ['spec', 'source', 'path'], 'apps/web'))).toEqual(parse(written));
  });
  it('UX-APP-12(part) an emptied field goes, with what it leaves empty, and what means something stays', () => {
    const some = write(written, ['spec', 'source', 'helm', 'valueFiles'], ['values-prod.yaml']);
    expect(parse(some).spec.source.helm).toEqual({ valueFiles: ['values-prod.yaml'] });
    expect(parse(write(some, ['spec', 'source', 'helm', 'valueFiles'], undefined))).toEqual(parse(written));
    expect(parse(write(written, ['spec', 'syncPolicy', 'syncOptions'], undefined)).spec.syncPolicy).toEqual({
      automated: {},
    });
    expect(parse(write(written, ['spec', 'syncPolicy', 'automated'], undefined)).spec.syncPolicy).toBeUndefined();
  });
  it('UX-APP-12(part) one source becomes several and one again, without loss', () => {
    const two = addSource(written);
    expect(parse(two).spec.sources).toHaveLength(2);
    expect(parse(two).spec.source).toBeUndefined();
    expect(parse(two).spec.sources[0]).toEqual(parse(written).spec.source);
    expect(parse(removeSource(two, 1))).toEqual(parse(written));
    expect(parse(addSource(two)).spec.sources).toHaveLength(3);
  });
  it('UI-04 a text that is no YAML says at which line, and is left alone by the form', () => {
    const broken = written.replace('project: shop', 'project: [shop');
    expect(read(broken).problem).not.toBe('');
    expect(read(broken).line).toBeGreaterThan(6);
    expect(write(broken, ['spec', 'project'], 'x')).toBe(broken);
    expect(read('just words').problem).toContain('no object');
  });
});

describe('UI-04 problems stand at their fields', () => {
  it('UI-04 an empty form names what it lacks', () => {
    const at = problemsOf(read(begin({})).value).map((p) => p.path.join('.'));
    expect(at).toEqual(['metadata.name', 'spec.source.repoURL', 'spec.destination.name']);
    expect(problemsOf(read(written).value)).toEqual([]);
  });
  it.each([
    ['application web: project "shop" does not permit the repository https://git.example.com/x', 'spec.source.repoURL'],
    ['project "shop" does not permit the destination prod, namespace "web"', 'spec.destination.name'],
    ['project "venus" does not exist', 'spec.project'],
    ['spec.sources[1]: path "/etc" is absolute', 'spec.sources.1.path'],
    ['name "Web" is no DNS name', 'metadata.name'],
    ['revision "v9" was not found', 'spec.source.targetRevision'],
  ])('UI-04 the refusal %j is shown at %s', (message, at) => {
    expect(fieldOf(message, read(written).value)?.join('.')).toBe(at);
  });
  it('UI-04 the line of a field is found in the text', () => {
    expect(lineOf(written, ['spec', 'source', 'path'])).toBe(11);
    expect(lineOf(written, ['spec', 'source', 'chart'])).toBe(10);
  });
});

describe('UI-12 changes of two people', () => {
  const base = parse(written);
  it('UI-12 what does not conflict is merged, and a conflict names both sides', () => {
    const mine = withValue(withValue(base, ['spec', 'source', 'path'], 'mine'), ['metadata', 'labels'], { a: '1' });
    const theirs = withValue(withValue(base, ['spec', 'source', 'path'], 'theirs'), ['spec', 'project'], 'other');
    const out = merge(base, mine, theirs);
    expect(out.conflicts).toEqual([{ path: ['spec', 'source', 'path'], mine: 'mine', theirs: 'theirs' }]);
    expect(out.value).toEqual(withValue(theirs, ['metadata', 'labels'], { a: '1' }));
  });
  it('UI-12 equal changes are no conflict, and a field below a removed one is', () => {
    const same = withValue(base, ['spec', 'project'], 'other');
    expect(merge(base, same, same)).toEqual({ value: same, conflicts: [] });
    const mine = withValue(base, ['spec', 'source', 'path'], 'mine');
    const theirs = withValue(base, ['spec', 'source'], undefined);
    expect(merge(base, mine, theirs).conflicts.map((c) => c.path)).toEqual([['spec', 'source']]);
  });
  it('UI-12 changes are listed field by field', () => {
    expect(changesOf(base, withValue(base, ['spec', 'destination', 'namespace'], 'x'))).toEqual([
      { path: ['spec', 'destination', 'namespace'], before: 'web', after: 'x' },
    ]);
  });
});
