package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/exit"
)

func TestLocalRepositoryRoot(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		write(name+"/../.keep", "")
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("repo/app/one.yaml", "kind: One\n")
	write("repo/shared/two.yaml", "kind: Two\n")
	write("outside/secret.yaml", "kind: Outside\n")
	link("repo/shared/two.yaml", "repo/app/two.yaml")
	link("outside/secret.yaml", "repo/leaks/secret.yaml")
	link("repo", "entry")
	at := func(name string) string { return filepath.Join(dir, name) }

	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"CLI-06 --local-repo-root holds the files of --local and what they link to": {[]string{"--local", at("repo/app"), "--local-repo-root", at("repo")}, exit.OK, `"manifests":["kind: One\n","kind: Two\n"]`},
		"CLI-06 --local-repo-root may be a link itself":                             {[]string{"--local", at("repo/app"), "--local-repo-root", at("entry")}, exit.OK, `"kind: Two\n"`},
		"CLI-06 --local without a root reads what it did":                           {[]string{"--local", at("repo/leaks")}, exit.OK, `"kind: Outside\n"`},
		"CLI-06 a link that leaves --local-repo-root is refused":                    {[]string{"--local", at("repo/leaks"), "--local-repo-root", at("repo")}, exit.Usage, "outside of --local-repo-root"},
		"CLI-06 --local outside of --local-repo-root is refused":                    {[]string{"--local", at("outside"), "--local-repo-root", at("repo")}, exit.Usage, "outside of --local-repo-root"},
		"CLI-06 --local-repo-root that is not there":                                {[]string{"--local", at("repo/app"), "--local-repo-root", at("none")}, exit.Usage, "--local-repo-root"},
		"CLI-06 --local-repo-root that is a file":                                   {[]string{"--local", at("repo/app"), "--local-repo-root", at("repo/app/one.yaml")}, exit.Usage, "no directory"},
		"CLI-06 --local-repo-root without --local":                                  {[]string{"--local-repo-root", at("repo")}, exit.Usage, "give --local too"},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			h := many(t, well, empty, "", "web")
			code, _, errs := capstan(t, "", append([]string{"app", "sync", "web", "--server", h.URL, "--token", "t0ken"}, c.args...)...)
			asked := h.bodies["web"]
			if code != c.code || !strings.Contains(asked+errs, c.says) || code != exit.OK && asked != "" {
				t.Errorf("exit %d, %s, asked %s", code, errs, asked)
			}
		})
	}
}
