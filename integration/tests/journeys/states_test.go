//go:build soak

package journeys_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/playwright"
)

// TestStates runs web/e2e/states.spec.ts, which walks through all pages.
func TestStates(t *testing.T) {
	run(t, "states", map[string]playwright.TextAct{"person": person, "tenant": tenant, "many": many})
}

const (
	most    = 300 // projects and applications
	mostOne = 60  // of what is made one by one
)

// many makes so much of everything that each list has to be long.
func many(ctx context.Context, _ string) (string, error) {
	var manifests strings.Builder
	for i := range most {
		fmt.Fprintf(&manifests, `---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: project-%[1]d, namespace: argocd}
spec: {sourceRepos: ["*"], destinations: [{name: "*", namespace: "*"}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app-%[1]d, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: guestbook, targetRevision: main}
  destination: {name: in-cluster, namespace: app-%[1]d}
`, i, in.repository)
	}
	if _, err := in.admin.Apply(ctx, manifests.String()); err != nil {
		return "", err
	}
	for i := range mostOne {
		account := map[string]any{"name": fmt.Sprintf("person-%d", i), "password": rand.Text(), "roles": []string{"readonly"}}
		repository := map[string]any{"url": fmt.Sprintf("https://git.example.com/team-%d/shop.git", i)}
		cluster := map[string]any{"name": fmt.Sprintf("cluster-%d", i), "labels": map[string]string{"env": "prod", "region": "eu"}}
		for path, body := range map[string]any{"/api/v1/users": account, "/api/v1/repositories": repository, "/api/v1/clusters/enroll": cluster} {
			if err := in.admin.Do(ctx, http.MethodPost, path, body, nil); err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return "", nil
}
