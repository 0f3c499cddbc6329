package stories_test

import (
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// TestResourcePolicy removes objects of a chart that are to be kept.
func TestResourcePolicy(t *testing.T) {
	const name = "keep"
	kept := func(object string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + object + "\n  annotations: {helm.sh/resource-policy: keep}\ndata: {v: one}\n"
	}
	repo := repository(t, name, map[string]string{
		"app/Chart.yaml":            "apiVersion: v2\nname: keep\nversion: 1.0.0\n",
		"app/templates/a.yaml":      configMap("a", "one"),
		"app/templates/gone.yaml":   configMap("gone", "one"),
		"app/templates/first.yaml":  kept("kept-by-prune"),
		"app/templates/second.yaml": kept("kept-by-cascade"),
	})
	deploy(t, name, repo.URL(), "app", "")
	settled(t, name)
	cluster := s.Clusters["in-cluster"]
	t.Run("HELM-23 what leaves the chart is pruned, but not with the resource policy keep", func(t *testing.T) {
		if _, err := repo.Push(t.Context(), gitserver.Change{Branch: "main", Message: "remove", Remove: []string{"app/templates/gone.yaml", "app/templates/first.yaml"}}); err != nil {
			t.Fatal(err)
		}
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, name, "gone"); err != nil {
			t.Fatal(err)
		}
		live(t, name, "kept-by-prune", value("one"))
	})
	t.Run("HELM-23 a cascaded deletion deletes the others, and keeps both", func(t *testing.T) {
		cli(t, "app", "delete", name, "--yes")
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, name, "a"); err != nil {
			t.Fatal(err)
		}
		absent(t, name)
		live(t, name, "kept-by-prune", value("one"))
		live(t, name, "kept-by-cascade", value("one"))
	})
}
