package diff_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	object := func(spec map[string]any) *manifest.Object {
		return &manifest.Object{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "a"}, "spec": spec}}
	}
	type m = map[string]any
	cases := map[string]struct {
		why                 string
		rule                diff.Rule
		desired, live, want m
	}{
		"Pointer": {
			why:     "somebody has pinned a revision; the path follows the template",
			rule:    diff.Rule{JSONPointers: []string{"/spec/source/targetRevision"}},
			desired: m{"source": m{"targetRevision": "main", "path": "b"}},
			live:    m{"source": m{"targetRevision": "v1", "path": "a"}},
			want:    m{"source": m{"targetRevision": "v1", "path": "b"}},
		},
		"Removed": {
			why:     "somebody has switched automation off by removing it",
			rule:    diff.Rule{JSONPointers: []string{"/spec/syncPolicy/automated"}},
			desired: m{"syncPolicy": m{"automated": m{"prune": true}, "retry": m{"limit": int64(1)}}},
			live:    m{"syncPolicy": m{"retry": m{"limit": int64(2)}}},
			want:    m{"syncPolicy": m{"retry": m{"limit": int64(1)}}},
		},
		"Item": {
			why:     "an ignored field of an item of a list stays, although another field of it changes",
			rule:    diff.Rule{JQ: []string{".spec.sources[].targetRevision"}},
			desired: m{"sources": []any{m{"targetRevision": "main", "path": "b"}, m{"targetRevision": "main", "path": "new"}}},
			live:    m{"sources": []any{m{"targetRevision": "v1", "path": "a"}}},
			want:    m{"sources": []any{m{"targetRevision": "v1", "path": "b"}, m{"targetRevision": "main", "path": "new"}}},
		},
		"Foreign": {
			why:     "what no rule names is as the template has it",
			rule:    diff.Rule{JSONPointers: []string{"/spec/source/targetRevision"}},
			desired: m{"source": m{"path": "a"}},
			live:    m{"source": m{"path": "a"}, "info": []any{"x"}},
			want:    m{"source": m{"path": "a"}},
		},
		"None": {
			why:     "without rules the desired object is returned",
			desired: m{"source": m{"path": "a"}},
			live:    m{"source": m{"path": "b"}},
			want:    m{"source": m{"path": "a"}},
		},
	}
	for name, c := range cases {
		t.Run("ASET-16 "+name, func(t *testing.T) {
			t.Parallel()
			c.rule.Group, c.rule.Kind = "argoproj.io", "Application"
			ignore, err := diff.NewIgnore([]diff.Rule{c.rule})
			if err != nil {
				t.Fatal(err)
			}
			got, err := diff.Keep(object(c.desired), object(c.live), ignore)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.Object["spec"]); d != "" {
				t.Errorf("%s: %s", c.why, d)
			}
		})
	}
}
