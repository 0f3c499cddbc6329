package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// served is the API list of a cluster with custom kinds in groups of ten.
func served(kinds, versions int, filling string) []string {
	out := []string{"v1", "v1/ConfigMap", "apps/v1", "apps/v1/Deployment"}
	for i := range kinds {
		for v := range versions {
			gv := fmt.Sprintf("g%d.%s.example.com/v1beta%d", i/10, filling, v)
			if i%10 == 0 {
				out = append(out, gv)
			}
			out = append(out, fmt.Sprintf("%s/Thing%d", gv, i))
		}
	}
	slices.Sort(out)
	return out
}

func TestFitting(t *testing.T) {
	t.Parallel()
	groups := func(all []string) int {
		n := 0
		for _, line := range all {
			if !names(line) {
				n++
			}
		}
		return n
	}
	cases := map[string]struct {
		why   string
		all   []string
		whole bool
	}{
		"Nothing":     {"a cluster that was not read yet", nil, true},
		"FT-K11":      {"5,000 custom kinds in two versions each", served(5000, 2, "crowd.of.services"), true},
		"ManyLines":   {"no hub takes more lines", served(20000, 2, "x"), false},
		"LongLines":   {"the message has to fit", served(5000, 2, strings.Repeat("long.", 40)), false},
		"GroupsAlone": {"even versions of groups can be too many", slices.Repeat([]string{"a.example.com/v1"}, 2*mostServed), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, size := fitting(c.all), 0
			for _, line := range got {
				size += cost(line)
			}
			if whole := len(got) == len(c.all); whole != c.whole {
				t.Errorf("%d of %d lines: %s", len(got), len(c.all), c.why)
			}
			if len(got) > mostServed || size > mostServedText || !slices.IsSorted(got) {
				t.Errorf("%d lines of %d bytes, sorted: %v", len(got), size, slices.IsSorted(got))
			}
			if want := min(groups(c.all), mostServed); groups(got) != want {
				t.Errorf("%d versions of groups, want %d", groups(got), want)
			}
		})
	}
}
