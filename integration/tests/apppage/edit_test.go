package apppage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// TestEdit runs web/e2e/create.spec.ts: applications are made, edited and
// rolled back in the console.
func TestEdit(t *testing.T) {
	ctx := within(t)
	repo, err := s.Repository(ctx, "catalogue", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "Begin the catalogue", catalogue); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: fenced, namespace: argocd}
spec:
  description: what the fence permits
  sourceRepos: ["https://git.example.com/fenced/*"]
  destinations: [{name: %s, namespace: "fenced-*"}]
`, cluster)); err != nil {
		t.Fatal(err)
	}
	history := deploy(t, "past", map[string]string{"app/config.yaml": configMap("settings", "first")})
	run(t, "create", map[string]func(context.Context) (string, error){
		"repository": func(context.Context) (string, error) { return repo.URL(), nil },
		"somebody":   somebody,
		"spec":       specOf("made"),
		"gone":       gone("unsaved"),
		"settled": func(ctx context.Context) (string, error) {
			_, err := s.API.Wait(ctx, "made", stack.Settled)
			return "", err
		},
		"past": func(ctx context.Context) (string, error) {
			if _, err := history.Commit(ctx, "Change the past\n\nWith a reason.", map[string]string{"app/config.yaml": configMap("settings", "second"), "app/extra.yaml": configMap("more", "1")}); err != nil {
				return "", err
			}
			if _, err := s.API.CLI(ctx, "", "app", "refresh", "past"); err != nil {
				return "", err
			}
			return s.API.CLI(ctx, "", "app", "sync", "past", "--operation", "--reason", "the second time")
		},
	})
}

// catalogue has a chart, a kustomization and a directory of plain manifests.
var catalogue = map[string]string{
	"charts/web/Chart.yaml":            "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"charts/web/values.yaml":           "replicas: 1\nmode: plain\n",
	"charts/web/values-prod.yaml":      "mode: prod\n",
	"charts/web/templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-config}\ndata: {mode: {{ .Values.mode | quote }}, replicas: {{ .Values.replicas | quote }}}\n",
	"overlays/prod/kustomization.yaml": "resources: [config.yaml]\nnamePrefix: prod-\n",
	"overlays/prod/config.yaml":        configMap("overlay", "1"),
	"plain/config.yaml":                configMap("plain", "1"),
	"plain/below/secret.yaml":          "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {value: never-shown-anywhere}\n",
	"values/shared.yaml":               "mode: shared\n",
}

// somebody is another person who edits the application at the same time.
func somebody(ctx context.Context) (string, error) {
	patch := `{"metadata":{"labels":{"team":"theirs"}},"spec":{"destination":{"namespace":"theirs"}}}`
	return "", s.API.Do(ctx, http.MethodPatch, "/api/v1/applications/argocd/made", map[string]any{"patch": patch, "patchType": "merge"}, nil)
}

// specOf is an application as the hub has it stored.
func specOf(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var x struct {
			Metadata struct {
				Labels, Annotations map[string]string
			}
			Spec json.RawMessage
		}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+name, nil, &x); err != nil {
			return "", err
		}
		text, err := json.Marshal(x)
		return string(text), err
	}
}

// gone says whether there is an application of that name.
func gone(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if _, err := s.API.Get(ctx, name); err != nil {
			return "yes", nil //nolint:nilerr // the absence is the answer
		}
		return "no", nil
	}
}
