package journeys_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/playwright"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// TestJourneys runs web/e2e/journeys.spec.ts and prints its figures.
func TestJourneys(t *testing.T) {
	e := newEnrolment(t)
	run(t, "journeys", map[string]playwright.TextAct{
		"started":     func(context.Context, string) (string, error) { return in.begun.Format(time.RFC3339Nano), nil },
		"enroll":      e.enroll,
		"check":       e.check,
		"person":      person,
		"push":        push,
		"prod":        prod,
		"delete-prod": deleteProd,
		"tenant":      tenant,
	})
}

// person makes an account, given as its name and roles, and returns its password.
func person(ctx context.Context, body string) (string, error) {
	name, roles, _ := strings.Cut(body, " ")
	password := rand.Text()
	account := map[string]any{"name": name, "password": password, "roles": strings.Fields(roles)}
	return password, in.admin.Do(ctx, http.MethodPost, "/api/v1/users", account, nil)
}

// tenant makes a tenant and returns the setup link of its first admin.
func tenant(ctx context.Context, name string) (string, error) {
	var made struct {
		SetupLink string `json:"setupLink"`
	}
	err := in.admin.Do(ctx, http.MethodPost, "/api/v1/tenants", map[string]any{"name": name}, &made)
	return made.SetupLink, err
}

// push changes the greeting of the guestbook, as a person with Git does.
func push(ctx context.Context, text string) (string, error) {
	dir, err := os.MkdirTemp(in.dir, "push-")
	if err != nil {
		return "", err
	}
	git := exec.CommandContext(ctx, "bash", "-e", "-c", `git clone -q "$1" . && sed -i "s/^  text: .*/  text: $2/" guestbook/greeting.yaml
git -c user.name=ann -c user.email=ann@example.com commit -qam "Greet differently" && git push -q && git rev-parse HEAD`, "push", in.repository, text)
	git.Dir = dir
	out, err := git.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("push: %w\n%s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// prod makes the project prod with an application, for which a policy has rules.
func prod(ctx context.Context, _ string) (string, error) {
	if _, err := in.admin.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: prod, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", namespace: "*"}]
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: checkout, namespace: argocd}
spec:
  project: prod
  source: {repoURL: %q, path: guestbook, targetRevision: main}
  destination: {name: in-cluster, namespace: prod}
`, in.repository)); err != nil {
		return "", err
	}
	policy := map[string]any{"argocd-rbac-cm": map[string]any{"policy.csv": "# on call\np, role:on-call, applications, delete, prod/*, allow\ng, olga, role:on-call\n"}}
	return "", in.admin.Do(ctx, http.MethodPatch, "/api/v1/settings", map[string]any{"values": policy}, nil)
}

// deleteProd has a person, given as name and password, delete the application
// of prod, and says how the hub has answered.
func deleteProd(ctx context.Context, body string) (string, error) {
	name, password, _ := strings.Cut(body, " ")
	api, err := stack.SignIn(ctx, in.bin, filepath.Join(in.dir, "person-"+name), in.url, name, password)
	if err != nil {
		return "", err
	}
	err = api.Do(ctx, http.MethodDelete, "/api/v1/applications/argocd/checkout", nil, nil)
	var refused *stack.StatusError
	if errors.As(err, &refused) {
		return fmt.Sprint(refused.Status), nil
	}
	return "deleted", err
}

// run runs a spec of web/e2e, and reports each of its tests as a subtest.
func run(t *testing.T, spec string, acts map[string]playwright.TextAct) {
	t.Helper()
	outside := playwright.ServeText(acts)
	defer outside.Close()
	playwright.Run(t, playwright.Options{
		Web: filepath.Join(root(), "web"), Specs: spec, Acts: outside, Limit: 25 * time.Minute,
		Env: []string{"CAPSTAN_URL=" + in.url, "CAPSTAN_SETUP_LINK=none", "CAPSTAN_USER=admin", "CAPSTAN_PASSWORD=" + in.password},
	})
}
