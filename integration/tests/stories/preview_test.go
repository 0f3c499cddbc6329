package stories_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// rowsOf counts the rows of an application that a preview must not write.
func rowsOf(t *testing.T, conn *pgx.Conn, name string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, table := range []string{"snapshot", "log_row", "operation", "history", "tombstone"} {
		var n int
		sql := "SELECT count(*) FROM " + table + " WHERE application_id = (SELECT id FROM application WHERE name = $1)"
		if err := conn.QueryRow(t.Context(), sql, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		out[table] = n
	}
	return out
}

// previewOf runs app diff, and returns its output with the error's text.
func previewOf(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	out, err := s.API.CLI(within(t, waitLimit), "", append([]string{"app", "diff"}, args...)...)
	var failed *stack.CLIError
	switch {
	case errors.As(err, &failed):
		return out + failed.Text, failed.Code
	case err != nil:
		t.Fatal(err)
	}
	return out, 0
}

// fetched waits until the hub has fetched a branch.
func fetched(t *testing.T, name, address, branch string) {
	t.Helper()
	refreshRepository(t, address)
	if err := poll.Until(within(t, waitLimit), func(context.Context) error {
		if out, code := previewOf(t, name, "--revision", branch); code == 6 {
			return errors.New(out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPreview compares the cluster with a branch before anybody merges it.
func TestPreview(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	const name = "preview"
	repo := repository(t, name, map[string]string{
		"app/a.yaml": configMap("a", "one"), "app/old.yaml": configMap("old", "one"), "app/same.yaml": configMap("same", "one"),
		"app/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: preview-secret-one}\n",
	})
	if _, err := s.API.Apply(within(t, waitLimit), `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: preview, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", server: "*", namespace: preview}]
  namespaceResourceBlacklist: [{group: "", kind: ServiceAccount}]
  clusterResourceWhitelist: [{group: "", kind: Namespace}]
`); err != nil {
		t.Fatal(err)
	}
	deploy(t, name, repo.URL(), "app", "")
	cli(t, "app", "set", name, "--project", "preview")
	settled(t, name)
	branch := gitserver.Change{
		Branch: "feature", Message: "feature", Remove: []string{"app/old.yaml"},
		Write: map[string]string{
			"app/a.yaml": configMap("a", "two"), "app/new.yaml": configMap("new", "two"),
			"app/s.yaml":      "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: preview-secret-two}\n",
			"app/denied.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: denied}\n",
			"app/far.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: far, namespace: kube-system}\n",
		},
	}
	commit, err := repo.Push(t.Context(), branch)
	if err != nil {
		t.Fatal(err)
	}
	fetched(t, name, repo.URL(), "feature")
	deployed(t, name)
	before, rows := appStateOf(t, conn, name), rowsOf(t, conn, name)
	for title, revision := range map[string]string{"a branch": "feature", "a commit": commit} {
		t.Run("DIFF-17 pain 18 a preview of "+title+" shows adds, changes and removals, and writes nothing", func(t *testing.T) {
			out, code := previewOf(t, name, "--revision", revision)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range []string{
				"ConfigMap preview/a: ", "-  v: one", "+  v: two", "ConfigMap preview/new: would be created", "ConfigMap preview/old: would be pruned",
				"Secret preview/s: ", "hmac:", "does not permit objects of kind ServiceAccount", "does not permit objects in namespace kube-system",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not show %q", want)
				}
			}
			if strings.Contains(out, "preview-secret") || strings.Contains(out, "preview/same") {
				t.Error("it shows a value, or what does not differ")
			}
			if t.Failed() {
				t.Log(out)
			}
			if diff := cmp.Diff(before, appStateOf(t, conn, name)); diff != "" {
				t.Errorf("the preview changed something (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(rows, rowsOf(t, conn, name)); diff != "" {
				t.Errorf("the preview wrote rows (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("DIFF-17 a preview of what is deployed shows nothing, and ends with 0", func(t *testing.T) {
		if out, code := previewOf(t, name, "--revision", "main"); code != 0 || strings.TrimSpace(out) != "" {
			t.Errorf("%d\n%s", code, out)
		}
	})
	t.Run("DIFF-17 a source of several is chosen by its position", func(t *testing.T) {
		out, code := previewOf(t, name, "--revisions", "feature", "--source-positions", "1")
		if code != 1 || !strings.Contains(out, "would be created") {
			t.Errorf("%d\n%s", code, out)
		}
		if out, code = previewOf(t, name, "--revisions", "feature", "--source-positions", "2"); code != 2 || !strings.Contains(out, "not between 1 and 1") {
			t.Errorf("%d\n%s", code, out)
		}
	})
	t.Run("DIFF-17 a revision that there is not is refused by name", func(t *testing.T) {
		if out, code := previewOf(t, name, "--revision", "nowhere"); code != 6 || !strings.Contains(out, "nowhere") {
			t.Errorf("%d\n%s", code, out)
		}
	})
	t.Run("SEC-C6 an object of another application, or of nobody, is not shown", func(t *testing.T) {
		other := repository(t, "preview-other", map[string]string{"app/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: preview}\ndata: {v: theirs-alone}\n"})
		deploy(t, "preview-other", other.URL(), "app", "")
		settled(t, "preview-other")
		if err := s.Clusters["in-cluster"].Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nobodys, namespace: preview}\ndata: {v: nobody-alone}\n"); err != nil {
			t.Fatal(err)
		}
		grab := gitserver.Change{Branch: "grab", Message: "grab", Write: map[string]string{"app/t.yaml": configMap("theirs", "mine"), "app/n.yaml": configMap("nobodys", "mine")}}
		if _, err := repo.Push(t.Context(), grab); err != nil {
			t.Fatal(err)
		}
		fetched(t, name, repo.URL(), "grab")
		out, code := previewOf(t, name, "--revision", "grab", "-o", "json")
		if code != 1 || strings.Contains(out, "theirs-alone") || strings.Contains(out, "nobody-alone") {
			t.Errorf("%d\n%s", code, out)
		}
		for _, want := range []string{"preview-other", "does not manage"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	})
}
