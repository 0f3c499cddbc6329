package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// heard waits until the agent has stored all that its log holds.
func heard(t *testing.T) {
	t.Helper()
	err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		var c struct{ Seq, AckedSeq int64 }
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/in-cluster", nil, &c); err != nil {
			return err
		}
		if c.Seq != c.AckedSeq {
			return fmt.Errorf("row %d of %d", c.AckedSeq, c.Seq)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestInClusterSwitchedOff(t *testing.T) {
	const app = "inside"
	repo := repository(t, app, map[string]string{"app/a.yaml": configMap("a", "one"), "app/b.yaml": configMap("b", "one")})
	deploy(t, app, repo.URL(), "app", "")
	settled(t, app)
	refused := func(t *testing.T, args ...string) {
		t.Helper()
		out, err := s.API.CLI(within(t, waitLimit), "", args...)
		if err == nil || !strings.Contains(out+err.Error(), "cluster.inClusterEnabled of argocd-cm is false") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	t.Run("APP-05 a value that is neither true nor false is refused", func(t *testing.T) {
		out, err := s.API.Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {cluster.inClusterEnabled: nope}\n")
		if err == nil || !strings.Contains(out+err.Error(), "neither true nor false") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Cleanup(func() { settings(t, "{cluster.inClusterEnabled: null}") })
	settings(t, `{cluster.inClusterEnabled: "false"}`)
	t.Run("APP-05 while disabled, in-cluster is no destination, and its applications show that", func(t *testing.T) {
		condition(t, app, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if c.Type == "InvalidSpecError" && strings.Contains(c.Message, "cluster.inClusterEnabled of argocd-cm is false") && x.Status.Capstan.Hold != "" {
					return nil
				}
			}
			return fmt.Errorf("hold %q, conditions %v", x.Status.Capstan.Hold, x.Status.Conditions)
		})
		refused(t, "app", "sync", app)
		refused(t, "app", "rollback", app, "1")
		refused(t, "app", "delete", app, "--yes")
	})
	t.Run("APP-05 a new application with that destination is refused when it is written", func(t *testing.T) {
		for name, destination := range map[string]string{"by-name": "name: in-cluster", "by-server": "server: https://kubernetes.default.svc"} {
			var answer struct{ Warnings []string }
			body := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "inside-" + name}}
			key, value, _ := strings.Cut(destination, ": ")
			body["spec"] = map[string]any{
				"project": "default", "source": map[string]any{"repoURL": repo.URL(), "path": "app"}, "destination": map[string]any{key: value, "namespace": app},
			}
			if err := s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/applications", body, &answer); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(answer.Warnings, " "), "destination in-cluster is switched off") {
				t.Errorf("warnings %q", answer.Warnings)
			}
			says(t, "inside-"+name, "destination in-cluster is switched off")
		}
	})
	t.Run("APP-05 existing objects are not changed: nothing is applied, healed or deleted", func(t *testing.T) {
		heard(t)
		maps := s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace(app)
		// What it has just heard may not be in force yet: then it heals once more.
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			o, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"v":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
			if err != nil {
				return err
			}
			// Without a destination the application is Unknown; the cluster's own comparison is that of its objects.
			var x struct {
				Status struct {
					Resources []struct{ Name, Status string }
				}
			}
			err = s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+app, nil, &x)
			if err != nil || !slices.ContainsFunc(x.Status.Resources, func(r struct{ Name, Status string }) bool { return r.Name == "a" && r.Status == "OutOfSync" }) {
				return fmt.Errorf("%v: %+v", err, x.Status)
			}
			now, err := maps.Get(ctx, "a", metav1.GetOptions{})
			if err == nil && now.GetResourceVersion() != o.GetResourceVersion() {
				err = errors.New("it was healed")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		commit, err := repo.Push(t.Context(), gitserver.Change{Message: "two", Write: map[string]string{"app/a.yaml": configMap("a", "two")}, Remove: []string{"app/b.yaml"}})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.API.CLI(within(t, waitLimit), "", "app", "refresh", app); err != nil {
			t.Fatal(err, out)
		}
		heard(t)
		if x, err := s.API.Get(t.Context(), app); err != nil || x.Status.Sync.Revision == commit {
			t.Errorf("it moved to %s: %v", x.Status.Sync.Revision, err)
		}
		for name, want := range map[string]string{"a": "edited", "b": "one"} {
			o, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || value(want)(o) != nil {
				t.Errorf("%s: %v, %v", name, o, err)
			}
		}
	})
	t.Run("APP-05 after it is enabled again, everything continues", func(t *testing.T) {
		settings(t, "{cluster.inClusterEnabled: null}")
		live(t, app, "a", value("two"))
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, app, "b"); err != nil {
			t.Fatal(err)
		}
		settled(t, app)
	})
}
