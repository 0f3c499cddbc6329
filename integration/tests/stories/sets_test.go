package stories_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// setSpec is an application set; its generators and what else is in its spec are
// lines of YAML.
func setSpec(name, repo, path, generators, more string) string {
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: %[1]s, namespace: argocd}
spec:
  goTemplate: true
  generators:
%[4]s
  template:
    metadata: {name: '%[1]s-{{.path.basename}}'}
    spec:
      project: default
      source: {repoURL: %[2]q, path: '%[3]s', targetRevision: main}
      destination: {name: in-cluster, namespace: '%[1]s-{{.path.basename}}'}
      syncPolicy:
        automated: {prune: true, selfHeal: true}
        syncOptions: [CreateNamespace=true]
%[5]s`, name, repo, path, generators, more)
}

// A shownSet is an application set as the API returns it.
type shownSet struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
		Rollout    []struct {
			Application, Status, Step, Message string
		} `json:"applicationStatus"`
		ResourcesCount int `json:"resourcesCount"`
		Health         struct {
			Status string `json:"status"`
		} `json:"health"`
	} `json:"status"`
}

// condition returns "status reason" of a condition of a set.
func (x shownSet) condition(kind string) (status, message string) {
	for _, c := range x.Status.Conditions {
		if c.Type == kind {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// setUntil waits until a set is as a check wants it.
func setUntil(t *testing.T, name string, check func(shownSet) error) shownSet {
	t.Helper()
	var x shownSet
	if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		text, err := s.API.CLI(ctx, "", "appset", "get", name, "-o", "json")
		if err != nil {
			return err
		}
		x = shownSet{}
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			return err
		}
		return check(x)
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

func healthySet(count int) func(shownSet) error {
	return func(x shownSet) error {
		if x.Status.ResourcesCount != count || x.Status.Health.Status != "Healthy" {
			return fmt.Errorf("%+v", x.Status)
		}
		return nil
	}
}

func TestApplicationSetOfDirectories(t *testing.T) {
	repo := repository(t, "set-dirs", map[string]string{"apps/a/cm.yaml": configMap("v", "a"), "apps/b/cm.yaml": configMap("v", "b")})
	generator := fmt.Sprintf("    - git: {repoURL: %q, revision: main, directories: [{path: apps/*}]}", repo.URL())
	cluster := s.Clusters["in-cluster"]
	t.Run("ASET-01 ASET-12 AGEN-03 a set makes applications of directories, and they are deployed", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), setSpec("dirs", repo.URL(), "{{.path.path}}", generator, "")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "dirs-"+name, "v", value(name)); err != nil {
				t.Fatal(err)
			}
			settled(t, "dirs-"+name)
		}
		setUntil(t, "dirs", healthySet(2))
	})
	t.Run("AGEN-17 a push makes an application, and another one deletes it with its objects", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "more", map[string]string{"apps/c/cm.yaml": configMap("v", "c")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "dirs-c", "v", value("c")); err != nil {
			t.Fatal(err)
		}
		settled(t, "dirs-c")
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "less", Remove: []string{"apps/c/cm.yaml"}}); err != nil {
			t.Fatal(err)
		}
		absent(t, "dirs-c")
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, "dirs-c", "v"); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "dirs", healthySet(2))
	})
	t.Run("FT-G3 INV-3 an empty repository deletes nothing without consent", func(t *testing.T) {
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "nothing", Remove: []string{"apps/a/cm.yaml", "apps/b/cm.yaml"}, Write: map[string]string{"README": "empty"}}); err != nil {
			t.Fatal(err)
		}
		x := setUntil(t, "dirs", func(x shownSet) error {
			if status, _ := x.condition("DeletionHeld"); status != "True" {
				return fmt.Errorf("%+v", x.Status)
			}
			return nil
		})
		if _, message := x.condition("DeletionHeld"); !strings.Contains(message, "argocd/dirs-a, argocd/dirs-b") {
			t.Error(message)
		}
		settledNames(t, "dirs-a", "dirs-b")
		if _, err := repo.Commit(t.Context(), "back", map[string]string{"apps/a/cm.yaml": configMap("v", "a"), "apps/b/cm.yaml": configMap("v", "b")}); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "dirs", healthySet(2))
	})
	t.Run("ASET-12 DEL-02 the deletion of a set deletes its applications and their objects", func(t *testing.T) {
		cli(t, "appset", "delete", "dirs", "--yes")
		for _, name := range []string{"a", "b"} {
			absent(t, "dirs-"+name)
			if err := cluster.WaitGone(within(t, waitLimit), configMaps, "dirs-"+name, "v"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// settledNames requires that applications are there and not being deleted.
func settledNames(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.API.Get(within(t, waitLimit), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
