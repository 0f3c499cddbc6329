package api

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDifference(t *testing.T) {
	t.Parallel()
	hashes := func(text string) (out []nodeHash) {
		for _, c := range []byte(text) {
			out = append(out, nodeHash{c})
		}
		return out
	}
	for _, c := range []struct {
		before, after string
		removed, at   []int
	}{
		{"", "", nil, nil},
		{"abc", "abc", nil, nil},
		{"", "ab", nil, []int{0, 1}},
		{"ab", "", []int{0, 1}, nil},
		{"abc", "aXc", []int{1}, []int{1}},
		{"abc", "ac", []int{1}, nil},
		{"ac", "abc", nil, []int{1}},
		{"abc", "cab", []int{0, 1}, []int{1, 2}},
		{"aab", "aab", []int{0}, []int{1}}, // equal nodes need not be told apart
	} {
		if removed, at := difference(hashes(c.before), hashes(c.after)); !cmp.Equal(removed, c.removed) || !cmp.Equal(at, c.at) {
			t.Errorf("from %q to %q: removed %v, at %v", c.before, c.after, removed, at)
		}
	}
	t.Run("any list becomes any other", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			list := rapid.Map(rapid.SliceOfN(rapid.ByteRange('a', 'h'), 0, 12), func(b []byte) []nodeHash { return hashes(string(b)) })
			before, after := list.Draw(t, "before"), list.Draw(t, "after")
			removed, at := difference(before, after)
			got := slices.Clone(before)
			for _, i := range slices.Backward(removed) {
				got = slices.Delete(got, i, i+1)
			}
			for _, i := range at {
				got = slices.Insert(got, i, after[i])
			}
			if !slices.Equal(got, after) || !slices.IsSorted(removed) || !slices.IsSorted(at) {
				t.Fatalf("removed %v, at %v make %v", removed, at, got)
			}
		})
	})
}
