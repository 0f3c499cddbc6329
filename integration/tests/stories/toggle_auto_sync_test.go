package stories_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// The action that Argo CD has for applications, on one that another renders.
func TestToggleAutoSync(t *testing.T) {
	ctx := within(t, 3*waitLimit)
	repo := repository(t, "toggle", map[string]string{"app/a.yaml": configMap("a", "one")})
	if _, err := repo.Commit(ctx, "child", map[string]string{"apps/toggled.yaml": child("toggled", "default", repo.URL(), "app", "")}); err != nil {
		t.Fatal(err)
	}
	parent := fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: toggle-parent, namespace: argocd}\nspec:\n  project: default\n"+
		"  source: {repoURL: %q, path: apps, targetRevision: main}\n  destination: {server: https://kubernetes.default.svc, namespace: argocd}\n", repo.URL())
	if _, err := s.API.Apply(ctx, parent); err != nil {
		t.Fatal(err)
	}
	cli := func(args ...string) (string, error) { return s.API.CLI(within(t, waitLimit), "", args...) }
	if out, err := cli("app", "sync", "toggle-parent"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	settled(t, "toggled")
	enabled := func(t *testing.T) bool {
		t.Helper()
		var app struct {
			Spec struct {
				SyncPolicy struct{ Automated struct{ Enabled *bool } }
			}
		}
		if err := s.API.Do(ctx, "GET", "/api/v1/applications/argocd/toggled", nil, &app); err != nil {
			t.Fatal(err)
		}
		on := app.Spec.SyncPolicy.Automated.Enabled
		return on == nil || *on
	}
	run := func(action string) (string, error) {
		return cli("app", "actions", "run", "toggle-parent", action, "--kind", "Application", "--resource-name", "toggled")
	}
	t.Run("ACT-09 its name in the list is its effect", func(t *testing.T) {
		out, err := cli("app", "actions", "list", "toggle-parent", "--kind", "Application", "-o", "json")
		if err != nil || !json.Valid([]byte(out)) || !strings.Contains(out, "toggle-auto-sync") || !strings.Contains(out, "Disable Auto-Sync") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("ACT-09 automation of the child is switched off", func(t *testing.T) {
		if out, err := run("toggle-auto-sync"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if enabled(t) {
			t.Error("automation is still on")
		}
		if _, err := repo.Commit(ctx, "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		refreshRepository(t, repo.URL())
		condition(t, "toggled", func(x stack.App) error {
			if x.Status.Sync.Status != "OutOfSync" {
				return fmt.Errorf("it is %s", x.Status.Sync.Status)
			}
			return nil
		})
	})
	t.Run("ACT-09 and on again, and the audit log has both", func(t *testing.T) {
		if out, err := run("toggle-auto-sync"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !enabled(t) {
			t.Error("automation is still off")
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, "toggled", "a", value("two")); err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := s.API.Do(ctx, "GET", "/api/v1/audit?limit=200", nil, &raw); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(raw), "action/argoproj.io/Application/toggle-auto-sync"); n != 4 {
			t.Errorf("%d entries of the action, want two for each time", n)
		}
	})
	t.Run("ACT-09 another action of an application is refused", func(t *testing.T) {
		if out, err := run("restart"); err == nil || !strings.Contains(err.Error()+out, "toggle-auto-sync") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
