package hub

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
)

func TestPositionsOfSources(t *testing.T) {
	t.Parallel()
	spec := func() ApplicationSpec {
		return ApplicationSpec{Sources: []Source{{RepoURL: "https://a", TargetRevision: "main"}, {RepoURL: "https://b", TargetRevision: "main"}, {RepoURL: "https://c", TargetRevision: "main"}}}
	}
	for name, c := range map[string]struct {
		override Override
		want     []string
	}{
		"SRC-13 position 1 is the first source":                 {Override{Revisions: []string{"v1"}, Positions: []int{1}}, []string{"v1", "main", "main"}},
		"SRC-13 positions and revisions are parallel":           {Override{Revisions: []string{"v3", "v1"}, Positions: []int{3, 1}}, []string{"v1", "main", "v3"}},
		"SRC-13 without positions revisions are in order":       {Override{Revisions: []string{"v1", "v2"}}, []string{"v1", "v2", "main"}},
		"SRC-13 refused: position 0":                            {Override{Revisions: []string{"v1"}, Positions: []int{0}}, nil},
		"SRC-13 refused: a position behind the last source":     {Override{Revisions: []string{"v1"}, Positions: []int{4}}, nil},
		"SRC-13 refused: a position that is given twice":        {Override{Revisions: []string{"v1", "v2"}, Positions: []int{2, 2}}, nil},
		"SRC-13 refused: more positions than revisions":         {Override{Revisions: []string{"v1"}, Positions: []int{1, 2}}, nil},
		"SRC-13 refused: more revisions than there are sources": {Override{Revisions: []string{"a", "b", "c", "d"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := spec()
			got, err := c.override.Apply(before)
			if c.want == nil {
				if fault.KindOf(err) != fault.Invalid {
					t.Errorf("%+v, %v", got.Sources, err)
				}
				return
			}
			var revisions []string
			for i, s := range got.Sources {
				if revisions = append(revisions, s.TargetRevision); s.RepoURL != before.Sources[i].RepoURL {
					t.Errorf("source %d is %s", i+1, s.RepoURL)
				}
			}
			if d := cmp.Diff(c.want, revisions); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
			if d := cmp.Diff(spec(), before); d != "" {
				t.Errorf("the specification was changed: %s", d)
			}
		})
	}
}
