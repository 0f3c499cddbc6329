package validation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestNamesOfSources(t *testing.T) {
	t.Parallel()
	app := func(first, second string) *hub.Application {
		source := func(name string) map[string]string {
			return map[string]string{"repoURL": "https://git.example.com/a/b", "path": ".", "name": name}
		}
		spec, err := json.Marshal(map[string]any{"sources": []any{source(first), source(second)}, "destination": map[string]string{"name": "only"}})
		if err != nil {
			t.Fatal(err)
		}
		return &hub.Application{Meta: hub.Meta{Name: "shop", Namespace: "argocd"}, Project: "default", Spec: spec}
	}
	t.Run("SRC-09 two sources of one name are refused", func(t *testing.T) {
		t.Parallel()
		_, _, err := validation.CheckApplication(app("chart", "chart"))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), `the name "chart" too`) {
			t.Errorf("%v", err)
		}
	})
	t.Run("SRC-09 other names, and none, are accepted", func(t *testing.T) {
		t.Parallel()
		for _, names := range [][2]string{{"chart", "values"}, {"", ""}, {"chart", ""}} {
			if _, _, err := validation.CheckApplication(app(names[0], names[1])); err != nil {
				t.Errorf("%q: %v", names, err)
			}
		}
	})
}
