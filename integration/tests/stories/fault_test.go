package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// slow is an application of 50 objects in three waves behind a hook that
// takes a while.
func slow(value string) map[string]string {
	names := make([]string, 50)
	for i := range names {
		names[i] = fmt.Sprintf("cm-%02d", i)
	}
	return suite.InWaves(value, "2s", 3, names)
}

// interrupted deploys the slow application, does something while its hook
// runs, and proves that everything came to its end once.
func interrupted(t *testing.T, name string, disturb func(t *testing.T)) {
	t.Helper()
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, name, slow("one"))
	if err := cluster.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n"); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 2*waitLimit)
	watching, err := cluster.Dynamic().Resource(jobs).Namespace(name).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created := make(chan string, 100)
	go func() {
		for e := range watching.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "ADDED" {
				created <- string(o.GetUID())
			}
		}
	}()
	deploy(t, name, repo.URL(), "app", "")
	select {
	case <-created:
	case <-ctx.Done():
		t.Fatal("the hook was not created")
	}
	disturb(t)
	for i := range 50 {
		if _, err := cluster.WaitFor(ctx, configMaps, name, fmt.Sprintf("cm-%02d", i), value("one")); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, name)
	watching.Stop()
	if n := len(created); n != 0 {
		t.Errorf("the hook was created %d times more", n)
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Run("FT-H1 the hub is killed during a sync with waves and a hook", func(t *testing.T) {
		interrupted(t, "kill-hub", func(t *testing.T) {
			if err := s.Hub.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Hub.Start(within(t, waitLimit)); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("FT-A1 the agent is killed during a sync with waves and a hook", func(t *testing.T) {
		interrupted(t, "kill-agent", func(t *testing.T) {
			if err := s.Agents["in-cluster"].Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Agents["in-cluster"].Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("FT-D1 Postgres restarts during a sync with waves and a hook", func(t *testing.T) {
		interrupted(t, "restart-db", func(t *testing.T) {
			if err := s.Postgres.Restart(within(t, waitLimit), postgres.StopImmediate); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func TestHubIsUnreachable(t *testing.T) {
	repo := repository(t, "away", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "away", repo.URL(), "app", "")
	settled(t, "away")
	cluster := s.Clusters["in-cluster"]
	heal := func(t *testing.T, edit string) {
		t.Helper()
		ctx := within(t, waitLimit)
		maps := cluster.Dynamic().Resource(configMaps).Namespace("away")
		if _, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"v":"`+edit+`"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(ctx, configMaps, "away", "a", value("one")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Hub.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Run("INV-12 an edit is healed while the hub is stopped", func(t *testing.T) { heal(t, "edited") })
	t.Run("INV-12 an edit is healed by an agent that was restarted while the hub is stopped", func(t *testing.T) {
		if err := s.Agents["in-cluster"].Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Agents["in-cluster"].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		heal(t, "edited again")
	})
	if err := s.Hub.Start(within(t, waitLimit)); err != nil {
		t.Fatal(err)
	}
	if err := s.Connected(within(t, 2*waitLimit), "in-cluster"); err != nil {
		t.Fatal(err)
	}
	t.Run("INV-5 a push after the hub's restart reaches the cluster", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "away", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDatabaseIsUnreachable(t *testing.T) {
	t.Run("FT-D2 an unreachable database is one clear sentence, and everything continues afterwards", func(t *testing.T) {
		if err := s.Postgres.Halt(postgres.StopImmediate); err != nil {
			t.Fatal(err)
		}
		_, err := s.API.CLI(within(t, waitLimit), "", "app", "list")
		if resumed := s.Postgres.Resume(within(t, waitLimit)); resumed != nil {
			t.Fatal(resumed)
		}
		if err == nil || !strings.Contains(err.Error(), "database") || strings.Contains(err.Error(), "postgres://") {
			t.Errorf("error %v", err)
		}
		ctx := within(t, waitLimit)
		if err := poll.Until(ctx, func(ctx context.Context) error {
			_, err := s.API.CLI(ctx, "", "app", "list")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}
