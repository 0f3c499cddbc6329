package glob_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, s string
		flat, path bool
	}{
		{"*", "", true, true},
		{"*", "a/b", true, true},
		{"a", "a", true, true},
		{"a", "ab", false, false},
		{"a*", "a/b", true, false},
		{"a**", "a/b", true, true},
		{"a/*", "a/b/c", true, false},
		{"a/**", "a/b/c", true, true},
		{"a?c", "a/c", true, false},
		{"a?c", "abc", true, true},
		{"a?c", "aüc", true, true},
		{"kube-[a-z]*", "kube-system", true, true},
		{"kube-[!s]*", "kube-system", false, false},
		{"{kube-system,default}", "default", true, true},
		{"{kube-*,default}", "kube-public", true, true},
		{"{kube-*,default}", "shop", false, false},
		{`a\*`, "a*", true, true},
		{`a\*`, "ab", false, false},
		{"[", "[", false, false},
		{"[a-c-]x", "-x", true, true},
		{"[^a]x", "^x", true, true},
		{`[\]]x`, "]x", true, true},
		{"a.c", "abc", false, false},
		{"{a,{b,c}d}e", "cde", true, true},
		{"a,b", "a,b", true, true},
		{"a}", "a}", true, true},
		{"a|b", "a", false, false},
		{"?", "", false, false},
		{"*\n", "a\n", true, true},
		{"{a,b", "a", false, false},
		{"", "", true, true},
		{"", "a", false, false},
	} {
		if got := glob.Match(c.pattern, c.s); got != c.flat {
			t.Errorf("Match(%q, %q) = %t", c.pattern, c.s, got)
		}
		if got := glob.MatchPath(c.pattern, c.s); got != c.path {
			t.Errorf("MatchPath(%q, %q) = %t", c.pattern, c.s, got)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "*", "a/**", "{a,b}-[0-9]", `\{`, "!a"} {
		if err := glob.Check(good); err != nil {
			t.Errorf("Check(%q): %v", good, err)
		}
	}
	for _, bad := range []string{"[", "[]", "{a", `a\`, "a[z-a]", "a\xff", strings.Repeat("a", glob.MaxPattern+1)} {
		if err := glob.Check(bad); err == nil {
			t.Errorf("Check(%q) accepts it", bad)
		} else if k := fault.KindOf(err); k != fault.Invalid && k != fault.Exceeded {
			t.Errorf("Check(%q): %v", bad, err)
		}
	}
}

// Simple patterns are matched without a regular expression. Behind an empty
// alternative they are no longer simple and must match the same.
func TestSimplePatternsMatchAsExpressions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab/ü*?]{0,6}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab/ü]{0,8}`).Draw(t, "s")
		want := glob.Match("{}"+pattern, s)
		if got := glob.Match(pattern, s); got != want {
			t.Fatalf("Match(%q, %q) = %t, as an expression %t", pattern, s, got, want)
		}
	})
}
