package stories_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// says waits until a condition of an application contains all of the words.
func says(t *testing.T, app string, words ...string) {
	t.Helper()
	condition(t, app, func(x stack.App) error {
		for _, c := range x.Status.Conditions {
			found := true
			for _, w := range words {
				found = found && strings.Contains(strings.ToLower(c.Message), strings.ToLower(w))
			}
			if found {
				return nil
			}
		}
		return fmt.Errorf("no condition says %q: %+v", words, x.Status.Conditions)
	})
}

func TestBadInput(t *testing.T) {
	good := repository(t, "good", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "good", good.URL(), "app", "")
	settled(t, "good")

	t.Run("a wrong repository URL is a sentence on the application and the repository", func(t *testing.T) {
		deploy(t, "bad-url", s.Git.URL()+"/nothing-here.git", "app", "")
		says(t, "bad-url", "nothing-here")
		condition(t, "bad-url", func(stack.App) error {
			for line := range strings.Lines(cli(t, "repo", "list", "-o", "wide")) {
				if strings.Contains(line, "nothing-here") && strings.Contains(line, "Failed") {
					return nil
				}
			}
			return errors.New("the repository does not say that its fetch failed")
		})
	})
	t.Run("all of many wrong URLs are reported", func(t *testing.T) {
		var all strings.Builder
		for i := range 40 {
			fmt.Fprintf(&all, "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: nowhere-%02d, namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: %q, path: app}\n  destination: {name: in-cluster, namespace: x}\n", i, fmt.Sprintf("%s/nowhere-%02d.git", s.Git.URL(), i))
		}
		if _, err := s.API.Apply(t.Context(), all.String()); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			says(t, fmt.Sprintf("nowhere-%02d", i), fmt.Sprintf("nowhere-%02d", i))
		}
	})
	t.Run("CRED-01 a wrong password is reported, never shown", func(t *testing.T) {
		private, err := s.Repository(t.Context(), "private", gitserver.RepositoryOptions{Username: "bot", Password: "right-password"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := private.Commit(t.Context(), "begin", map[string]string{"app/a.yaml": configMap("a", "one")}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.CLI(t.Context(), "wrong-password\n", "repo", "add", private.URL(), "--username", "bot", "--password-stdin"); err != nil {
			t.Fatal(err)
		}
		deploy(t, "bad-password", private.URL(), "app", "")
		says(t, "bad-password", "credential")
		x, err := s.API.Get(t.Context(), "bad-password")
		if err != nil || strings.Contains(fmt.Sprint(x), "wrong-password") {
			t.Errorf("%v, the password is shown: %+v", err, x.Status.Conditions)
		}
		if _, err := s.API.CLI(t.Context(), "right-password\n", "repo", "add", private.URL(), "--username", "bot", "--password-stdin"); err != nil {
			t.Fatal(err)
		}
		settled(t, "bad-password")
	})
	t.Run("APP-06 a missing project is a condition", func(t *testing.T) {
		manifest := fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: no-project, namespace: argocd}\nspec:\n  project: nowhere\n  source: {repoURL: %q, path: app}\n  destination: {name: in-cluster, namespace: x}\n", good.URL())
		if _, err := s.API.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
		says(t, "no-project", "nowhere", "does not exist")
	})

	bad := repository(t, "bad", map[string]string{
		"keep/a.yaml":             configMap("kept", "one"),
		"broken/Chart.yaml":       "apiVersion: v2\nname: broken\nversion: 1.0.0\n",
		"broken/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.name | nosuchfunction }}}\n",
		"invalid/a.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata: just a word\n",
		"bomb/a.yaml":             bomb(),
		"large/a.yaml":            configMap("large", "x") + "# " + strings.Repeat("x", 100<<20),
		"wave/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: w, annotations: {argocd.argoproj.io/sync-wave: first}}\n",
		"unnamed/a.yaml":          configMap("named", "one") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: made-}\n",
		"rejected/a.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n",
		"unknown/a.yaml":          "apiVersion: example.com/v1\nkind: Unheard\nmetadata: {name: x}\n",
	})
	for _, c := range []struct {
		app, path, title string
		words            []string
	}{
		{"missing-path", "no/such/path", "SRC-01 a missing path is said", []string{"no/such/path"}},
		{"broken-chart", "broken", "a broken chart names the template and the cause", []string{"templates/a.yaml", "nosuchfunction"}},
		{"invalid-object", "invalid", "DIR-06 YAML with kind and metadata that is no object names the file", []string{"a.yaml", "metadata"}},
		{"alias-bomb", "bomb", "SEC-B1 a YAML alias bomb fails alone and says so", []string{"a.yaml", "alias"}},
		{"large-file", "large", "DIR-07 a file of 100 MB fails alone and says so", []string{"a.yaml"}},
	} {
		t.Run(c.title, func(t *testing.T) {
			deploy(t, c.app, bad.URL(), c.path, "")
			says(t, c.app, c.words...)
		})
	}
	t.Run("SEC-A3 a link out of the tree names the file", func(t *testing.T) {
		link, err := s.Repository(t.Context(), "link", gitserver.RepositoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pushLink(t, link, "app/passwd.yaml", "../../../../../../etc/passwd")
		deploy(t, "link-out", link.URL(), "app", "")
		says(t, "link-out", "passwd.yaml")
	})
	for _, c := range []struct{ app, path, title, word string }{
		{"rejected", "rejected", "APP-16 an object that the API server refuses is named in the operation", "Not_A_Name"},
		{"unknown-kind", "unknown", "ENG-15 a kind that is not served is named in the operation", "Unheard"},
	} {
		t.Run(c.title, func(t *testing.T) {
			deploy(t, c.app, bad.URL(), c.path, "")
			condition(t, c.app, func(x stack.App) error {
				if op := x.Status.OperationState; op != nil && strings.Contains(fmt.Sprintf("%s %+v", op.Message, op.SyncResult), c.word) {
					return nil
				}
				return fmt.Errorf("operation %+v", x.Status.OperationState)
			})
		})
	}
	t.Run("ENG-02 an invalid wave and an invalid option are reported, and count as not set", func(t *testing.T) {
		manifest := fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: bad-wave, namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: %q, path: wave}\n  destination: {name: in-cluster, namespace: bad-wave}\n  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true, Validate=maybe]}\n", bad.URL())
		if _, err := s.API.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
		says(t, "bad-wave", "ConfigMap w", "sync-wave", "first")
		says(t, "bad-wave", "Validate", "maybe", "counts as not set")
		settled(t, "bad-wave")
	})
	t.Run("SRC-20 only the object without a name fails", func(t *testing.T) {
		deploy(t, "unnamed", bad.URL(), "unnamed", "")
		condition(t, "unnamed", func(x stack.App) error {
			if op := x.Status.OperationState; op != nil && op.Phase == "Failed" && strings.Contains(fmt.Sprintf("%s %+v", op.Message, op.SyncResult), "metadata.name") {
				return nil
			}
			return fmt.Errorf("operation %+v", x.Status.OperationState)
		})
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, "unnamed", "named", value("one")); err != nil {
			t.Fatal(err)
		}
		x, err := s.API.Get(t.Context(), "unnamed")
		if err != nil || x.Status.Sync.Status != "OutOfSync" {
			t.Errorf("%v, sync %q; want OutOfSync", err, x.Status.Sync.Status)
		}
	})
	t.Run("INV-3 a render that breaks deletes nothing", func(t *testing.T) {
		deploy(t, "keep", bad.URL(), "keep", "")
		settled(t, "keep")
		if _, err := bad.Commit(t.Context(), "break it", map[string]string{"keep/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: [1, 2"}); err != nil {
			t.Fatal(err)
		}
		says(t, "keep", "b.yaml")
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, "keep", "kept", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("CLI-07 a sync of it applies the snapshot from before, and fails", func(t *testing.T) {
		if out, err := s.API.CLI(t.Context(), "", "app", "sync", "keep"); err == nil || !strings.Contains(err.Error(), "b.yaml") {
			t.Errorf("%v\n%s", err, out)
		}
		says(t, "keep", "b.yaml")
		if out, err := s.API.CLI(t.Context(), "", "app", "list"); err != nil || !strings.Contains(out, "ComparisonError") {
			t.Errorf("%v\n%s", err, out)
		}
		for limit := 100 * time.Millisecond; ; limit *= 4 {
			out, err := s.API.CLI(t.Context(), "", "app", "wait", "keep", "--timeout", limit.String())
			if err != nil && strings.Contains(err.Error(), "b.yaml") {
				break
			}
			// A slow hub has not answered by then.
			if err == nil || limit > waitLimit || !strings.Contains(err.Error(), "timed out") {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		if _, err := bad.Push(t.Context(), gitserver.Change{Message: "mend it", Remove: []string{"keep/b.yaml"}}); err != nil {
			t.Fatal(err)
		}
		if out, err := s.API.CLI(t.Context(), "", "app", "wait", "keep"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("INV-13 everything else continued", func(t *testing.T) {
		if _, err := good.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, "good", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
}

// bomb is nine levels of nine references.
func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\nx0: &x0 [a,a,a,a,a,a,a,a,a]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d,", i-1), 9), ","))
	}
	return b.String()
}

// pushLink commits a symbolic link with git itself.
func pushLink(t *testing.T, r *gitserver.Repository, name, target string) {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"git", "init", "-q", "-b", "main", "."},
		{"mkdir", "-p", filepath.Dir(name)},
		{"ln", "-s", target, name},
		{"git", "add", "."},
		{"git", "-c", "user.name=story", "-c", "user.email=story@example.com", "commit", "-q", "-m", "link"},
		{"git", "push", "-q", r.URL(), "main"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

func TestSignInAndRequestsRefused(t *testing.T) {
	t.Run("SEC-E8 a wrong password is one sentence and requires a sign-in", func(t *testing.T) {
		_, err := s.API.CLI(t.Context(), "not the password\n", "login", s.Hub.URL, "--username", "admin", "--password-stdin")
		var e *stack.CLIError
		if !errors.As(err, &e) || e.Code != 4 {
			t.Errorf("error %v", err)
		}
	})
	t.Run("UX-CLI-5 a missing application ends with exit code 6", func(t *testing.T) {
		_, err := s.API.CLI(t.Context(), "", "app", "get", "nowhere")
		var e *stack.CLIError
		if !errors.As(err, &e) || e.Code != 6 {
			t.Errorf("error %v", err)
		}
	})
	t.Run("HOOKW-02 a webhook with a wrong signature is refused", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Hub.URL+"/api/webhook", bytes.NewReader([]byte(`{"repository":{"clone_url":"https://git.example.com/x.git"}}`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-GitHub-Event", "push")
		req.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			t.Errorf("status %s", res.Status)
		}
	})
}
