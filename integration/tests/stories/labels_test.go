package stories_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// labelled returns what the tree of an application shows of its labels team and
// tier, by kind.
func labelled(t *testing.T, name string) string {
	t.Helper()
	var tree struct {
		Nodes []struct {
			Kind string
			Info []struct{ Name, Value string }
		}
	}
	if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/"+name+"/tree", nil, &tree); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range tree.Nodes {
		for _, i := range n.Info {
			if i.Name == "team" || i.Name == "tier" {
				out = append(out, n.Kind+" "+i.Name+"="+i.Value)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

func TestCustomLabels(t *testing.T) {
	repo := repository(t, "labels", map[string]string{
		"app/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {team: blue, other: x}}\n",
		"app/d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web, tier: front}}\n    spec: {containers: [{name: web, image: nginx}]}\n",
	})
	deploy(t, "labels", repo.URL(), "app", "")
	settled(t, "labels")
	t.Cleanup(func() { settings(t, "{resource.customLabels: null}") })
	shows := func(want string) {
		t.Helper()
		condition(t, "labels", func(stack.App) error {
			if got := labelled(t, "labels"); got != want {
				return fmt.Errorf("the tree shows %q, want %q", got, want)
			}
			return nil
		})
	}
	t.Run("TRK-09 labels that the tenant names are shown on objects and on what they own, at once", func(t *testing.T) {
		shows("")
		settings(t, `{resource.customLabels: "team, tier"}`)
		shows("ConfigMap team=blue, Pod tier=front, ReplicaSet tier=front")
	})
	t.Run("TRK-09 a label that is no longer configured is not shown", func(t *testing.T) {
		settings(t, `{resource.customLabels: "team"}`)
		shows("ConfigMap team=blue")
		settled(t, "labels")
	})
	if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "labels", "--yes"); err != nil {
		t.Error(err)
	}
}
