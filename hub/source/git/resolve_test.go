package git_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// someRefs has one commit per name, written as a digit forty times.
func someRefs() []hub.Ref {
	var refs []hub.Ref
	for i, name := range []string{
		"HEAD", "refs/heads/main", "refs/heads/feature/x", "refs/heads/both", "refs/tags/both", "refs/heads/1.x", "refs/heads/7.x", "refs/tags/v1.0.0",
		"refs/tags/v1.2.3", "refs/tags/1.10.0", "refs/tags/v2.0.0-rc.1", "refs/tags/web-1.0.0", "refs/tags/web-1.1.0", "refs/tags/api-v3.0.0", "refs/tags/nightly", "refs/tags/v1.10.0",
	} {
		refs = append(refs, hub.Ref{Name: name, Commit: strings.Repeat(string("0123456789abcdef"[i]), 40)})
	}
	return refs
}

func TestResolve(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("c0ffee", 6) + "c0ff"
	cases := map[string]struct{ revision, prefix, name string }{
		"SRC-01 nothing is HEAD":                     {"", "", "HEAD"},
		"SRC-01 HEAD":                                {"HEAD", "", "HEAD"},
		"SRC-01 a branch":                            {"main", "", "refs/heads/main"},
		"SRC-01 a branch with slashes":               {"feature/x", "", "refs/heads/feature/x"},
		"SRC-01 a tag":                               {"nightly", "", "refs/tags/nightly"},
		"SRC-08 branch and tag of one name: the tag": {"both", "", "refs/tags/both"},
		"SRC-08 the branch, by its full name":        {"refs/heads/both", "", "refs/heads/both"},
		"SRC-08 the tag, by its full name":           {"refs/tags/both", "", "refs/tags/both"},
		"SRC-06 an exact tag":                        {"v1.2.3", "", "refs/tags/v1.2.3"},
		"SRC-06 an exact version without its v":      {"1.2.3", "", "refs/tags/v1.2.3"},
		"SRC-06 a range, highest first by number":    {"1.x", "", "refs/tags/v1.10.0"},
		"SRC-06 comparison":                          {">=1.2 <1.5", "", "refs/tags/v1.2.3"},
		"SRC-06 tilde":                               {"~1.2", "", "refs/tags/v1.2.3"},
		"SRC-06 caret":                               {"^1.0.0", "", "refs/tags/v1.10.0"},
		"SRC-06 any, without pre-releases":           {"*", "", "refs/tags/v1.10.0"},
		"SRC-06 pre-releases if asked for":           {">=1.0.0-0", "", "refs/tags/v2.0.0-rc.1"},
		"SRC-06 no tag, but a branch of that name":   {"7.x", "", "refs/heads/7.x"},
		"SRC-07 a range under a prefix":              {"1.x", "web-", "refs/tags/web-1.1.0"},
		"SRC-07 an exact version under a prefix":     {"1.0.0", "web-", "refs/tags/web-1.0.0"},
		"SRC-07 a version with v under a prefix":     {"*", "api-", "refs/tags/api-v3.0.0"},
		"SRC-07 the whole tag, prefix and all":       {"web-1.0.0", "web-", "refs/tags/web-1.0.0"},
		"SRC-07 a branch in spite of a prefix":       {"main", "web-", "refs/heads/main"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commit, got, err := git.Resolve(someRefs(), c.revision, c.prefix)
			if err != nil || got != c.name {
				t.Fatalf("Resolve(%q, %q) = %q, %v; want %q", c.revision, c.prefix, got, err, c.name)
			}
			for _, r := range someRefs() {
				if r.Name == c.name && r.Commit != commit {
					t.Errorf("commit %s, want %s", commit, r.Commit)
				}
			}
		})
	}
	t.Run("SRC-01 a full commit in any case", func(t *testing.T) {
		t.Parallel()
		if commit, name, err := git.Resolve(nil, strings.ToUpper(full), ""); err != nil || commit != full || name != "" {
			t.Errorf("Resolve() = %q, %q, %v", commit, name, err)
		}
	})
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		refs             []hub.Ref
		revision, prefix string
		want             []string
	}{
		"an unknown name, with near ones": {someRefs(), "mian", "", []string{`"mian" is neither`, "near names: main"}},
		"nothing near":                    {someRefs(), "completely-else", "", []string{"check the target revision"}},
		"no tag in range":                 {someRefs(), ">=9", "", []string{`no tag satisfies the version constraint ">=9"`}},
		"no tag in range under a prefix":  {someRefs(), "9.x", "web-", []string{`no tag with the prefix "web-" satisfies`}},
		"no default branch":               {someRefs()[1:], "", "", []string{"no default branch"}},
		"a part of a name":                {someRefs(), "heads/main", "", []string{"neither"}},
		"case counts":                     {someRefs(), "Main", "", []string{"near names: main"}},
		"a pull request":                  {someRefs(), "refs/pull/1/head", "", []string{"neither"}},
		"no refs at all":                  {nil, "main", "", []string{"neither"}},
		"SEC-A8 an option":                {someRefs(), "--upload-pack=x", "", []string{"neither"}},
		"very long":                       {someRefs(), strings.Repeat("x", 9000), "", []string{"neither", "…"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := git.Resolve(c.refs, c.revision, c.prefix)
			sentence := fault.Sentence(err)
			if fault.KindOf(err) != fault.Missing || len(sentence) > 500 {
				t.Fatalf("Resolve() = %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(sentence, want) {
					t.Errorf("%q lacks %q", sentence, want)
				}
			}
		})
	}
}

func TestResolveCommits(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	m := gittest.NewMirrors(t, git.Config{})
	repo := origin.Hub()
	first := origin.Commit("refs/heads/main", "first", gittest.Files{"f": "1"})
	second := origin.Commit("refs/heads/main", "second", gittest.Files{"f": "2"})
	hidden := origin.Commit("refs/hidden/x", "hidden", gittest.Files{"f": "3"})
	origin.Git("", "config", "transfer.hideRefs", "refs/hidden")
	refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(revision string) (string, error) {
		return m.Resolve(gittest.Context(t), tenant, repo, refs, revision, "")
	}
	for name, c := range map[string]struct{ revision, want string }{
		"SRC-01 a full commit that no ref names": {first, first},
		"SRC-01 a full commit that a ref names":  {second, second},
		"SRC-01 a short commit":                  {first[:7], first},
		"SRC-01 a longer one, in capitals":       {strings.ToUpper(second[:20]), second},
		"SRC-01 a branch":                        {"main", second},
	} {
		if got, err := resolve(c.revision); err != nil || got != c.want {
			t.Errorf("%s: Resolve(%q) = %q, %v; want %q", name, c.revision, got, err, c.want)
		}
	}
	for name, revision := range map[string]string{
		"a commit that is nowhere":           strings.Repeat("12", 20),
		"a short one that is nowhere":        "1212121",
		"a short one that is too short":      first[:6],
		"a commit that the server withholds": hidden,
		"a file":                             origin.Git("", "rev-parse", "main:f"),
		"a short name of a file":             origin.Git("", "rev-parse", "main:f")[:8],
	} {
		_, err := resolve(revision)
		if fault.KindOf(err) != fault.Missing || !strings.Contains(fault.Sentence(err), "repository "+repo.URL) {
			t.Errorf("%s: %v, want Missing", name, err)
		}
	}
	t.Run("a missing commit is not requested again at once", func(t *testing.T) {
		lists := s.Lists.Load()
		for range 5 {
			if _, err := m.Tree(gittest.Context(t), tenant, repo, strings.Repeat("12", 20)); fault.KindOf(err) != fault.Missing {
				t.Errorf("Tree() = %v", err)
			}
		}
		if n := s.Lists.Load() - lists; n != 0 {
			t.Errorf("%d listings", n)
		}
	})
	t.Run("a commit that the server sends by name", func(t *testing.T) {
		origin.Git("", "config", "uploadpack.allowAnySHA1InWant", "true")
		fresh := gittest.NewMirrors(t, git.Config{})
		if got := gittest.Content(t, fresh, repo, hidden, "f"); got != "3" {
			t.Errorf("f = %q", got)
		}
		if got := gittest.Content(t, fresh, repo, second, "f"); got != "2" {
			t.Errorf("f = %q", got)
		}
	})
	t.Run("a replica without the mirror fetches it when a reader comes", func(t *testing.T) {
		fresh := gittest.NewMirrors(t, git.Config{})
		if got, err := fresh.Resolve(gittest.Context(t), tenant, repo, refs, first[:9], ""); err != nil || got != first {
			t.Errorf("Resolve() = %q, %v", got, err)
		}
	})
	t.Run("names that are no commits never reach the server", func(t *testing.T) {
		for _, name := range []string{"", "HEAD", "main", first[:39], first + "0", "../../../../x"} {
			if _, err := m.Tree(gittest.Context(t), tenant, repo, name); fault.KindOf(err) != fault.Invalid {
				t.Errorf("Tree(%q) = %v", name, err)
			}
		}
	})
	t.Run("an annotated tag by its own name is its commit", func(t *testing.T) {
		origin.Git("", "tag", "-a", "-m", "x", "v1", first)
		gittest.Fetched(t, m, repo)
		tag := origin.Git("", "rev-parse", "v1")
		if got, err := resolve(tag); err != nil || got != first {
			t.Errorf("Resolve(%s) = %q, %v", tag, got, err)
		}
		if got := gittest.Content(t, m, repo, tag, "f"); got != "1" {
			t.Errorf("f = %q", got)
		}
	})
}
