package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const tooLongTitle = "A title that goes on and on, gives its reasons at length, and so belongs in part into the body"

// repository makes a repository with commits of these titles, a second apart,
// and returns the ids.
func repository(t *testing.T, dir string, titles ...string) []string {
	t.Helper()
	run(t, dir, "init", "-q", "-b", "main")
	var ids []string
	for i, title := range titles {
		at := "@" + string(rune('1'+i)) + "000000000 +0000"
		t.Setenv("GIT_AUTHOR_DATE", at)
		t.Setenv("GIT_COMMITTER_DATE", at)
		run(t, dir, "-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "-q", "--allow-empty", "-m", title)
		ids = append(ids, strings.TrimSpace(run(t, dir, "rev-parse", "HEAD")))
	}
	return ids
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestTitles(t *testing.T) {
	full := t.TempDir()
	ids := repository(t, full, tooLongTitle, "Begin the rule", tooLongTitle, "Add a thing")
	if len(ids) != 4 {
		t.Fatal(ids)
	}
	fixed := commit{id: ids[1], committed: 2000000000}
	shallow := func(depth string) string {
		dir := filepath.Join(t.TempDir(), "clone")
		run(t, full, "clone", "-q", "--depth", depth, "file://"+full, dir)
		return dir
	}
	archive := filepath.Join(full, "archive")
	if err := os.Mkdir(archive, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		why    string
		root   string
		after  commit
		want   string // in what is written
		failed bool
	}{
		"Long":         {"titles after the fixed commit have a limit", full, fixed, ids[2][:12], true},
		"Before":       {"titles up to the fixed commit have none", full, commit{id: ids[2]}, "", false},
		"Shallow":      {"a shallow clone has no fixed commit: the date decides", shallow("1"), fixed, "", false},
		"ShallowLong":  {"a title that is there is checked", shallow("2"), fixed, ids[2][:12], true},
		"OtherHistory": {"a complete history without the fixed commit is another one", full, commit{id: strings.Repeat("0", 40)}, "were not checked", false},
		"Archive":      {"an unpacked archive has no history, also inside of another checkout", archive, fixed, "were not checked: there is no Git history", false},
		"Nowhere":      {"the same outside of any checkout", t.TempDir(), fixed, "were not checked: there is no Git history", false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := check(t.Context(), &out, c.root, c.after)
			if (err != nil) != c.failed {
				t.Errorf("check() = %v, %s", err, c.why)
			}
			if !strings.Contains(out.String(), c.want) || c.want == "" && out.Len() > 0 {
				t.Errorf("wrote %q, want %q: %s", out.String(), c.want, c.why)
			}
		})
	}
}
