package diff_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestReduce(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	type l = []any
	cases := map[string]struct {
		live, desired, applied, want m
	}{
		"defaults of the API server are left out": {
			m{"spec": m{"replicas": int64(1), "strategy": m{"type": "RollingUpdate"}}}, m{"spec": m{"replicas": int64(2)}}, nil, m{"spec": m{"replicas": int64(1)}},
		},
		"a field that was applied and is not desired any more is shown": {
			m{"data": m{"a": "1", "b": "2", "c": "3"}}, m{"data": m{"a": "1"}}, m{"data": m{"b": "2"}}, m{"data": m{"a": "1", "b": "2"}},
		},
		"items are found by name": {
			m{"c": l{m{"name": "x", "d": "default"}, m{"name": "web", "image": "1", "d": "default"}}},
			m{"c": l{m{"name": "web", "image": "2"}}}, nil,
			m{"c": l{m{"name": "x", "d": "default"}, m{"name": "web", "image": "1"}}},
		},
		"items without names are found by place": {m{"p": l{m{"a": "1", "d": "2"}}}, m{"p": l{m{"a": "3"}}}, nil, m{"p": l{m{"a": "1"}}}},
		"another type is a difference":           {m{"p": l{"a"}}, m{"p": "a"}, nil, m{"p": l{"a"}}},
		"nothing to compare with":                {m{"p": l{"a"}}, nil, nil, m{"p": l{"a"}}},
	}
	object := func(v m) *manifest.Object {
		if v == nil {
			return nil
		}
		return &manifest.Object{Object: v}
	}
	for name, c := range cases {
		t.Run("DIFF-16 "+name, func(t *testing.T) {
			t.Parallel()
			got := diff.Reduce(object(c.live), object(c.desired), object(c.applied))
			if d := cmp.Diff(c.want, got.Object); d != "" {
				t.Error(d)
			}
		})
	}
	if diff.Reduce(nil, object(m{})) != nil {
		t.Error("nothing became something")
	}
}
