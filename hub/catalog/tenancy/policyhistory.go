package tenancy

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// maxPolicyPage is how many versions of a policy are listed at once.
const maxPolicyPage = 100

// keepPolicy stores what the policy is after a change. Before the first one that is
// kept it stores what there was, so that this can be taken up again.
func (w *writer) keepPolicy(ctx context.Context, before, after []hub.Setting) error {
	was, is := policyValues(before), policyValues(after)
	changed := changedKeys(was, is)
	if len(changed) == 0 {
		return nil
	}
	kept, err := w.PolicyVersions(ctx, 0, 1)
	if err != nil {
		return err
	}
	if len(kept) == 0 && len(was) > 0 {
		first := hub.PolicyVersion{Values: was, Changed: slices.Sorted(maps.Keys(was))}
		for _, s := range before {
			if s.Map == rbac.Map && !s.UpdatedAt.Before(first.At) {
				first.At, first.By = s.UpdatedAt, s.UpdatedBy
			}
		}
		if err := w.AddPolicyVersion(ctx, first); err != nil {
			return err
		}
	}
	return w.AddPolicyVersion(ctx, hub.PolicyVersion{At: w.Now, By: w.By.Username, Reverts: w.reverts, Changed: changed, Values: is})
}

// policyValues are the keys of argocd-rbac-cm.
func policyValues(all []hub.Setting) map[string]string {
	out := map[string]string{}
	for _, s := range all {
		if s.Map == rbac.Map {
			out[s.Key] = s.Value
		}
	}
	return out
}

// changedKeys are those that differ, in order.
func changedKeys(before, after map[string]string) []string {
	var out []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, had := before[key]
		if is, has := after[key]; had != has || was != is {
			out = append(out, key)
		}
	}
	return out
}

// A PolicyChange is a key of a policy in two versions; one that is not set is empty.
type PolicyChange struct{ Key, Before, After string }

// A PolicyPast is a version of the policy, with what it changed and what differs
// from it now.
type PolicyPast struct {
	hub.PolicyVersion
	Changes []PolicyChange // from the version before it
	Since   []PolicyChange // from it to the policy of today
}

// PolicyHistory lists versions of the policy without their values, the newest first,
// and says whether there are older ones. Before 0 means: from the newest.
func (c *Tenancy) PolicyHistory(ctx context.Context, by hub.Caller, before int64, limit int) (versions []hub.PolicyVersion, more bool, err error) {
	if limit <= 0 || limit > maxPolicyPage {
		limit = maxPolicyPage
	}
	err = c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if err := r.readsPolicy(); err != nil {
			return err
		}
		versions, err = r.PolicyVersions(ctx, before, limit+1)
		more = len(versions) > limit
		versions = versions[:min(len(versions), limit)]
		return err
	})
	return versions, more, err
}

// PastPolicy returns one version of the policy. It has the keys that the caller
// may read.
func (c *Tenancy) PastPolicy(ctx context.Context, by hub.Caller, number int64) (PolicyPast, error) {
	var out PolicyPast
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if err := r.readsPolicy(); err != nil {
			return err
		}
		v, err := r.policyVersion(ctx, number)
		if err != nil {
			return err
		}
		previous := map[string]string{}
		if older, err := r.PolicyVersions(ctx, number, 1); err != nil {
			return err
		} else if len(older) > 0 {
			old, err := r.policyVersion(ctx, older[0].Number)
			if err != nil {
				return err
			}
			previous = old.Values
		}
		all, _, err := r.Tx.Settings(ctx)
		if err != nil {
			return err
		}
		out = PolicyPast{PolicyVersion: v, Changes: r.policyChanges(previous, v.Values), Since: r.policyChanges(v.Values, policyValues(all))}
		out.Values = maps.Clone(v.Values)
		maps.DeleteFunc(out.Values, func(key, _ string) bool { return !r.readsKey(key) })
		return nil
	})
	return out, err
}

// readsPolicy is the right to read the policy.
func (r *reader) readsPolicy() error {
	return r.Need(access.Settings, access.Get, validation.SettingName(rbac.Map, rbac.PolicyKey))
}

func (r *reader) readsKey(key string) bool {
	return r.Rights.Check(access.Settings, access.Get, validation.SettingName(rbac.Map, key))
}

func (r *reader) policyVersion(ctx context.Context, number int64) (hub.PolicyVersion, error) {
	v, err := r.Tx.PolicyVersionAt(ctx, number)
	if fault.KindOf(err) == fault.Missing {
		return v, fault.With(fault.New(fault.Missing, "there is no version %d of the access policy", number), "", "list those that are kept")
	}
	return v, err
}

// policyChanges are the keys that differ and that the caller may read.
func (r *reader) policyChanges(before, after map[string]string) []PolicyChange {
	var out []PolicyChange
	for _, key := range changedKeys(before, after) {
		if r.readsKey(key) {
			out = append(out, PolicyChange{key, before[key], after[key]})
		}
	}
	return out
}

// RevertPolicy makes the policy what it was in a version, by the same checks as any
// other change: rights on each key, the tests of that version, and no lockout. An
// expected version of the settings of 0 is any.
func (c *Tenancy) RevertPolicy(ctx context.Context, by hub.Caller, number, expect int64, dryRun bool) (SettingsPatch, error) {
	var out SettingsPatch
	err := c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		if err := w.LockSettings(ctx); err != nil {
			return err
		}
		if err := w.readsPolicy(); err != nil {
			return err
		}
		v, err := w.policyVersion(ctx, number)
		if err != nil {
			return err
		}
		all, _, err := w.Tx.Settings(ctx)
		if err != nil {
			return err
		}
		var changes []hub.SettingChange
		for _, key := range changedKeys(policyValues(all), v.Values) {
			change := hub.SettingChange{Map: rbac.Map, Key: key}
			if value, ok := v.Values[key]; ok {
				change.Value = &value
			}
			changes = append(changes, change)
		}
		if err := w.needSettings(ctx, changes); err != nil {
			return err
		}
		w.reverts = number
		out.Version, out.Outcome, err = w.changeSettings(ctx, changes, expect)
		out.Warnings = w.doubts
		return err
	})
	return out, err
}
