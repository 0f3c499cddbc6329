package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/argocd"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
)

// argoCommands reads the commands of Argo CD.
func argoCommands(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/argocd/commands")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func TestCommandsOfArgoCD(t *testing.T) {
	a := &app{Printer: output.Printer{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, in: strings.NewReader("")}
	root := a.root()
	root.InitDefaultCompletionCmd()
	all := argoCommands(t)
	t.Run("UX-CLI-16 each command of argocd exists under its name, or says how it is done here", func(t *testing.T) {
		for _, path := range all {
			c, rest, err := root.Find(strings.Fields(path))
			verb := err == nil && len(rest) == 0 && (path == "completion" || c.Runnable() && (!c.HasSubCommands() || path == "context"))
			if !verb {
				t.Errorf("argocd %s: %v, rest %q", path, err, rest)
			}
		}
	})
	t.Run("UX-CLI-16 no answer is about a command that argocd does not have", func(t *testing.T) {
		known := map[string]bool{}
		for _, path := range all {
			known[path] = true
		}
		seen := map[string]bool{}
		for _, answer := range argocd.Answers() {
			if !known[answer.Path] || seen[answer.Path] || answer.Says == "" {
				t.Errorf("%q", answer.Path)
			}
			seen[answer.Path] = true
		}
	})
	t.Run("UX-CLI-16 an answer ends with 2 and says what to do", func(t *testing.T) {
		code, out, errs := capstan(t, "", "cluster", "add", "production", "--kubeconfig", "x")
		if code != exit.Usage || out != "" || !strings.Contains(errs, "capstan cluster enroll NAME") {
			t.Errorf("%d %q %q", code, out, errs)
		}
		code, _, errs = capstan(t, "", "admin", "redis-initial-password")
		if code != exit.Usage || !strings.Contains(errs, "there is no Redis") {
			t.Errorf("%d %q", code, errs)
		}
	})
}
