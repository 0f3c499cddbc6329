import { expect, test } from 'vitest';
import { policyFacts } from './agent-policy';

const open = {
  allowDelete: true,
  allowClusterScoped: true,
  allowPrune: true,
  allowLiveEdit: true,
  allowOwnNamespace: false,
};

test('UX-ON-7(part) the policy of the owner is said thing by thing', () => {
  const facts = new Map(
    policyFacts({
      mode: 'cluster',
      rules: {
        ...open,
        allowPrune: false,
        namespaces: null,
        deny: [
          { group: '', kind: 'Secret', namespace: '', name: '', verbs: ['edit'] },
          { group: 'apps', kind: '*', namespace: 'kube-*', name: '' },
        ],
        logs: { enabled: true, namespaces: ['*', '!kube-*'] },
        exec: { enabled: true, namespaces: ['shop'], containers: ['app'], maxDuration: '1h0m0s', idleTimeout: '10m0s' },
        portForward: { enabled: false, ports: [80] },
      },
    }).map((f) => [f.label, f]),
  );
  const said = (label: string) => facts.get(label)?.value;
  expect(said('Namespaces')).toBe('all');
  expect(said('Kinds')).toBe('all');
  expect(said('Never')).toBe('Secret (edit), apps/* kube-*/*');
  expect(said('Delete objects')).toBe('permitted');
  expect(facts.get('Prune what Git no longer has')).toMatchObject({ value: 'not permitted', permitted: false });
  expect(said('Logs and events')).toBe('permitted: namespaces *, !kube-*');
  expect(said('Terminals')).toBe('permitted: namespaces shop; containers app; at most 1h0m0s; without typing 10m0s');
  expect(facts.get('Port-forward')).toMatchObject({ value: 'not permitted', permitted: false });
});

test('UX-ON-7(part) what a policy does not say is not permitted', () => {
  for (const rules of [{}, { exec: true, logs: [] }]) {
    const facts = policyFacts({ mode: 'observe', rules });
    expect(facts.filter((f) => f.permitted).map((f) => f.label)).toEqual(['Namespaces', 'Kinds', 'Never']);
  }
});
