package stories_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOwnChart delivers the agent's chart with the product itself: Helm in
// Git, with parameters. The pod is played; nothing runs in it.
func TestOwnChart(t *testing.T) {
	root := filepath.Join("..", "..", "..", "charts", "capstan-agent")
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files["chart"+strings.TrimPrefix(path, root)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	repo := repository(t, "own-chart", files)
	t.Run("HELM-11 the chart says which value is missing", func(t *testing.T) {
		deploy(t, "own-chart", repo.URL(), "chart", "")
		says(t, "own-chart", "is needed", "templates/")
	})
	t.Run("HELM-09 with its parameters the chart becomes healthy", func(t *testing.T) {
		manifest := strings.Replace(applied(t, "own-chart"), "path: chart", "path: chart\n    helm: {parameters: [{name: image.repository, value: example.com/agent}, {name: join.token, value: once}, {name: state.persistent, value: 'false'}]}", 1)
		if _, err := s.API.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
		settled(t, "own-chart")
		o, err := s.Clusters["in-cluster"].Dynamic().Resource(deployments).Namespace("own-chart").Get(t.Context(), "capstan-agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if strategy, _, _ := unstructured.NestedString(o.Object, "spec", "strategy", "type"); strategy != "Recreate" {
			t.Errorf("strategy %q", strategy)
		}
	})
}
