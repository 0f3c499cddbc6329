package apply

import (
	"context"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// diffLocally compares live state with the manifest itself. It is for objects
// without a dry run, because they must not be written or the dry run is
// refused. Each field of the manifest must have its value. A value that an API
// server would write differently, such as 0.5 for 500m, counts as a difference.
// It does not see fields that were removed from the manifest, so the caller
// must not report Synced after a refused dry run.
func (a *app) diffLocally(ctx context.Context, x *object, d *desired, s *sending, live *manifest.Object, no refusal) error {
	whole, _ := completed(s.body.Object, live.Object, false).(map[string]any)
	want := &manifest.Object{Object: whole}
	wish, err := a.e.hashes.Replaced(want, want, a.e.Manager, d.digest, s.ignore)
	if err != nil {
		return explain(err, x.key, "compare")
	}
	v, err := a.e.hashes.Compare(wish, live, s.ignore)
	if err != nil {
		return explain(err, x.key, "compare")
	}
	if v.Equal && no.fixed {
		v.Equal, v.Fields = false, []string{"a field that cannot be changed"}
	}
	seen := a.e.reduceLive(live, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	was := x.healthState()
	x.expected = expectation{digest: d.digest, uid: seen.uid, content: seen.content, equal: v.Equal, fields: v.Fields, problem: no.sentence}
	a.after(ctx, x, was)
	return nil
}

// completed returns the desired value, with fields added to items of lists that
// only live has: lists without names are compared whole, and defaults of the
// API server are not a difference. With all, it adds fields to maps, too.
func completed(want, live any, all bool) any {
	switch w := want.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		out := make(map[string]any, len(w))
		if all {
			for k, v := range l {
				out[k] = v
			}
		}
		for k, v := range w {
			out[k] = completed(v, l[k], all)
		}
		return out
	case []any:
		l, _ := live.([]any)
		if len(l) != len(w) {
			return want
		}
		out := make([]any, len(w))
		for i := range w {
			out[i] = completed(w[i], l[i], true)
		}
		return out
	}
	return want
}
