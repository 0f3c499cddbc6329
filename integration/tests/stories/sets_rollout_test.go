package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// inEnvironment registers labels of the cluster, until the test ends.
func inEnvironment(t *testing.T, labels string) {
	t.Helper()
	put := func(ctx context.Context, labels string) {
		text := "apiVersion: v1\nkind: Secret\nmetadata: {name: c, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster" + labels + "}}\n" +
			"stringData: {name: in-cluster, server: 'https://kubernetes.default.svc', config: '{}'}\n"
		if _, err := s.API.Apply(ctx, text); err != nil {
			t.Error(err)
		}
	}
	put(t.Context(), ", "+labels)
	t.Cleanup(func() { put(context.WithoutCancel(t.Context()), "") })
}

// A syncedApp is what the API says of the newest operation of an application.
type syncedApp struct {
	Status struct {
		Sync           struct{ Status, Revision string }
		OperationState *struct {
			Phase                 string
			StartedAt, FinishedAt time.Time
			SyncResult            *struct{ Revision string }
			Operation             struct{ InitiatedBy struct{ Username string } }
		}
	}
}

// syncedAt waits until an application was synced at a revision.
func syncedAt(t *testing.T, name, revision string) syncedApp {
	t.Helper()
	var x syncedApp
	if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		x = syncedApp{}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+name, nil, &x); err != nil {
			return err
		}
		op := x.Status.OperationState
		if op == nil || op.Phase != "Succeeded" || x.Status.Sync.Revision != revision || op.SyncResult == nil || op.SyncResult.Revision != revision {
			return fmt.Errorf("%s: %+v %+v", name, x.Status.Sync, op)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

// head is the newest commit of a repository.
func head(t *testing.T, repo *gitserver.Repository) string {
	t.Helper()
	out, err := repo.Run(t.Context(), "rev-parse", "main")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func TestRolloutOfTheGuide(t *testing.T) {
	repo := repository(t, "set-rollout", map[string]string{"deploy/cm.yaml": configMap("v", "one")})
	text := strings.NewReplacer("https://github.com/my-org/web.git", repo.URL(),
		"https://staging.example.com, namespace: web", "https://kubernetes.default.svc, namespace: web-staging",
		"https://production.example.com, namespace: web", "https://kubernetes.default.svc, namespace: web-production",
	).Replace(guideFile(t, "12-applicationset-rolling.yaml"))
	cluster := s.Clusters["in-cluster"]
	if err := cluster.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: web-staging}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web-production}\n"); err != nil {
		t.Fatal(err)
	}
	inOrder := func(revision string) {
		t.Helper()
		staged, produced := syncedAt(t, "web-staging", revision), syncedAt(t, "web-production", revision)
		if began, ended := produced.Status.OperationState.StartedAt, staged.Status.OperationState.FinishedAt; began.Before(ended) {
			t.Errorf("production began at %v, and staging ended at %v", began, ended)
		}
	}
	healthy := func(x shownSet) error {
		if len(x.Status.Rollout) != 2 {
			return errors.New("there is no rollout")
		}
		for _, a := range x.Status.Rollout {
			if a.Status != "Healthy" || (a.Step == "1") != (a.Application == "web-staging") {
				return fmt.Errorf("%+v", x.Status.Rollout)
			}
		}
		if status, _ := x.condition("RolloutProgressing"); status != "False" {
			return fmt.Errorf("%+v", x.Status.Conditions)
		}
		return healthySet(2)(x)
	}
	t.Run("APRG-02 APRG-05 APRG-06 the guide's set is synced in its steps", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		inOrder(head(t, repo))
		setUntil(t, "my-appset", healthy)
	})
	t.Run("APRG-05 a new revision is rolled out in the same order", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"deploy/cm.yaml": configMap("v", "two")}); err != nil {
			t.Fatal(err)
		}
		inOrder(head(t, repo))
		setUntil(t, "my-appset", healthy)
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "web-production", "v", value("two")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("APRG-09 a step that fails holds the next one", func(t *testing.T) {
		bad := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: v, namespace: web-nowhere}\ndata: {v: three}\n"
		if _, err := repo.Commit(t.Context(), "three", map[string]string{"deploy/cm.yaml": bad}); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "my-appset", func(x shownSet) error {
			for _, a := range x.Status.Rollout {
				if a.Application == "web-staging" && a.Status == "Progressing" && strings.Contains(a.Message, "failed") {
					return nil
				}
			}
			return fmt.Errorf("%+v", x.Status.Rollout)
		})
		for _, a := range setUntil(t, "my-appset", func(shownSet) error { return nil }).Status.Rollout {
			if a.Application == "web-production" && a.Status != "Waiting" {
				t.Errorf("%+v", a)
			}
		}
		if _, err := repo.Commit(t.Context(), "four", map[string]string{"deploy/cm.yaml": configMap("v", "four")}); err != nil {
			t.Fatal(err)
		}
		inOrder(head(t, repo))
		setUntil(t, "my-appset", healthy)
	})
	t.Run("AUTO-12 the set starts the operations of its applications", func(t *testing.T) {
		x := syncedAt(t, "web-production", head(t, repo))
		if by := x.Status.OperationState.Operation.InitiatedBy.Username; by != "applicationset my-appset" {
			t.Errorf("%q", by)
		}
	})
	t.Run("APRG-07 ASET-12 the set is deleted with its applications", func(t *testing.T) {
		cli(t, "appset", "delete", "my-appset", "--yes")
		absent(t, "web-staging")
		absent(t, "web-production")
	})
}

func TestMatrixOfTheGuide(t *testing.T) {
	inEnvironment(t, "environment: staging")
	repo := repository(t, "set-matrix", map[string]string{
		"platform/dns/overlays/staging/cm.yaml": configMap("v", "one"), "platform/logs/overlays/staging/cm.yaml": configMap("v", "one"),
	})
	if _, err := s.API.Apply(t.Context(), "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: platform, namespace: argocd}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}]}\n"); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(guideFile(t, "24-applicationset-matrix.yaml"), "https://github.com/my-org/gitops-repo.git", repo.URL())
	t.Run("AGEN-14 AGEN-02 the guide's matrix makes an application of each directory and cluster", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "platform-apps", func(x shownSet) error {
			if x.Status.ResourcesCount != 2 || len(x.Status.Rollout) != 2 {
				return fmt.Errorf("%+v", x.Status)
			}
			return nil
		})
		if got := applied(t, "platform-dns-in-cluster"); !strings.Contains(got, "platform/dns/overlays/staging") || !strings.Contains(got, "https://kubernetes.default.svc") {
			t.Errorf("%s", got)
		}
	})
	t.Run("AUTO-12 automated sync of its applications is off, and their options stay", func(t *testing.T) {
		spec, _, _ := strings.Cut(applied(t, "platform-dns-in-cluster"), "\nstatus:")
		if strings.Contains(spec, "automated") || !strings.Contains(spec, "ServerSideApply=true") {
			t.Errorf("%s", spec)
		}
	})
	t.Run("APRG-03 applications that no step selects are not synced", func(t *testing.T) {
		x := condition(t, "platform-logs-in-cluster", func(x stack.App) error {
			if x.Status.Sync.Status != "OutOfSync" {
				return fmt.Errorf("%+v", x.Status.Sync)
			}
			return nil
		})
		if x.Status.OperationState != nil {
			t.Errorf("%+v", x.Status.OperationState)
		}
		for _, a := range setUntil(t, "platform-apps", func(shownSet) error { return nil }).Status.Rollout {
			if a.Step != "-1" {
				t.Errorf("%+v", a)
			}
		}
	})
	cli(t, "appset", "delete", "platform-apps", "--yes")
	for _, name := range []string{"dns-in-cluster", "logs-in-cluster"} {
		absent(t, "platform-"+name)
	}
}
