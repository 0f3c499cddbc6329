package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// place is what the API says of a cluster's past.
type place struct {
	Connection string `json:"connection"`
	Held       bool   `json:"held"`
	Rewind     *struct {
		Reason   string `json:"reason"`
		Proven   bool   `json:"proven"`
		AgentSeq int64  `json:"agentSeq"`
		HubSeq   int64  `json:"hubSeq"`
	} `json:"rewind"`
}

func cluster(ctx context.Context) (place, error) {
	var p place
	err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/in-cluster", nil, &p)
	return p, err
}

// offline runs do while the hub is stopped.
func offline(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	if err := s.Hub.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := do(within(t, waitLimit)); err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Start(within(t, waitLimit)); err != nil {
		t.Fatal(err)
	}
}

// restore puts the database back to what it was when it was copied.
func restore(ctx context.Context) error {
	if err := s.Postgres.DropDatabase(ctx, "capstan"); err != nil {
		return err
	}
	_, err := s.Postgres.CloneDatabase(ctx, "capstan", "backup")
	return err
}

// rewound waits until the hub says that an agent holds another past, and the
// agent that it holds on to it.
func rewound(t *testing.T) place {
	t.Helper()
	var p place
	err := poll.Until(within(t, 2*waitLimit), func(ctx context.Context) (err error) {
		if p, err = cluster(ctx); err == nil && (p.Rewind == nil || !p.Held) {
			err = fmt.Errorf("rewind %+v, held %v", p.Rewind, p.Held)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRestoredBackup(t *testing.T) {
	in := s.Clusters["in-cluster"]
	maps := func(namespace string) func(name, want string) error {
		return func(name, want string) error {
			o, err := in.Dynamic().Resource(configMaps).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return value(want)(o)
		}
	}
	repo := repository(t, "rewind", map[string]string{"app/a.yaml": configMap("a", "one"), "app/b.yaml": configMap("b", "one")})
	deploy(t, "rewind", repo.URL(), "app", "    retry: {limit: 0}\n") // what goes on after the decision is no retry
	settled(t, "rewind")
	offline(t, func(ctx context.Context) error {
		_, err := s.Postgres.CloneDatabase(ctx, "backup", "capstan")
		return err
	})
	t.Cleanup(func() { _ = s.Postgres.DropDatabase(context.Background(), "backup") })
	if err := s.Connected(within(t, 2*waitLimit), "in-cluster"); err != nil {
		t.Fatal(err)
	}
	token, err := s.API.CLI(within(t, waitLimit), "", "cluster", "enroll", "elsewhere", "--token-only")
	if err != nil || strings.TrimSpace(token) == "" {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two"), "app/c.yaml": configMap("c", "two")}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.WaitFor(within(t, waitLimit), configMaps, "rewind", "c", value("two")); err != nil {
		t.Fatal(err)
	}
	later := repository(t, "later", map[string]string{"app/d.yaml": configMap("d", "one")})
	deploy(t, "later", later.URL(), "app", "")
	settled(t, "later")
	settled(t, "rewind")

	offline(t, restore)
	rewind, lost := maps("rewind"), maps("later")
	untouched := func(t *testing.T) {
		t.Helper()
		if err := errors.Join(rewind("a", "two"), rewind("b", "one"), rewind("c", "two"), lost("d", "one")); err != nil {
			t.Errorf("the restored hub changed the cluster: %v", err)
		}
	}
	t.Run("FT-D9 the hub shows that it was rewound, proven by its own signature", func(t *testing.T) {
		p := rewound(t)
		if !p.Held || !p.Rewind.Proven || p.Rewind.AgentSeq <= p.Rewind.HubSeq {
			t.Errorf("rewind %+v, held %v", p.Rewind, p.Held)
		}
		out, err := s.API.CLI(within(t, waitLimit), "", "cluster", "list")
		if err != nil || !strings.Contains(out, "accept-hub in-cluster") {
			t.Errorf("cluster list: %v\n%s", err, out)
		}
		untouched(t)
	})
	t.Run("FT-D9 enrolment is closed meanwhile", func(t *testing.T) {
		_, err := s.API.CLI(within(t, waitLimit), "", "cluster", "enroll", "another", "--token-only")
		if err == nil || !strings.Contains(err.Error(), "restored from a backup") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("INV-3 INV-8 a push that deletes reaches nobody: nothing is pruned or rolled back", func(t *testing.T) {
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "three", Write: map[string]string{"app/a.yaml": configMap("a", "three")}, Remove: []string{"app/b.yaml"}}); err != nil {
			t.Fatal(err)
		}
		condition(t, "rewind", func(x stack.App) error {
			if x.Status.Sync.Revision == "" || x.Status.OperationState == nil || x.Status.OperationState.Phase != "Pending" {
				return fmt.Errorf("revision %q, operation %+v", x.Status.Sync.Revision, x.Status.OperationState)
			}
			return nil
		})
		untouched(t)
	})
	t.Run("INV-12 an agent that restarts while the hub is unreachable still heals what it accepted", func(t *testing.T) {
		offline(t, func(ctx context.Context) error {
			agent := s.Agents["in-cluster"]
			if err := agent.Kill(); err != nil {
				return err
			}
			if err := agent.Start(ctx); err != nil {
				return err
			}
			_, err := in.Dynamic().Resource(configMaps).Namespace("rewind").Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"v":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
			if err != nil {
				return err
			}
			_, err = in.WaitFor(ctx, configMaps, "rewind", "a", value("two"))
			return err
		})
		rewound(t)
		untouched(t)
	})
	t.Run("FT-D9 after an admin has decided everything continues, and what the hub lost stays", func(t *testing.T) {
		if out, err := s.API.CLI(within(t, waitLimit), "", "cluster", "accept-hub", "in-cluster", "--yes"); err != nil {
			t.Fatal(err, out)
		}
		if _, err := in.WaitFor(within(t, 2*waitLimit), configMaps, "rewind", "a", value("three")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(rewind("c", "two"), lost("d", "one")); err != nil {
			t.Errorf("what the hub did not know was deleted: %v", err)
		}
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			if p, err := cluster(ctx); err != nil || p.Rewind != nil || p.Held || p.Connection != "Connected" {
				return fmt.Errorf("cluster %+v, %v", p, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		var audit struct {
			Items []struct{ Action, Object, Actor string }
		}
		if err := s.API.Do(t.Context(), http.MethodGet, "/api/v1/audit", nil, &audit); err != nil {
			t.Fatal(err)
		}
		if len(audit.Items) == 0 || !strings.Contains(fmt.Sprint(audit.Items), "accept-hub in-cluster admin") {
			t.Errorf("the decision is not in the audit log: %v", audit.Items)
		}
	})
	t.Run("INV-8 a push after it reaches the cluster", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "four", map[string]string{"app/a.yaml": configMap("a", "four")}); err != nil {
			t.Fatal(err)
		}
		if _, err := in.WaitFor(within(t, waitLimit), configMaps, "rewind", "a", value("four")); err != nil {
			t.Fatal(err)
		}
		settled(t, "rewind")
	})
	t.Run("FT-D9 capstan-hub restored stops everything until an admin decides", func(t *testing.T) {
		out, err := s.Hub.Command(within(t, waitLimit), "restored")
		if err != nil || !strings.Contains(out, "accept-hub") {
			t.Fatal(err, out)
		}
		offline(t, func(context.Context) error { return nil }) // the agent's next stream is judged anew
		if p := rewound(t); !p.Held {
			t.Errorf("cluster %+v", p)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "cluster", "accept-hub", "--all", "--yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(t.Context(), "five", map[string]string{"app/a.yaml": configMap("a", "five")}); err != nil {
			t.Fatal(err)
		}
		if _, err := in.WaitFor(within(t, 2*waitLimit), configMaps, "rewind", "a", value("five")); err != nil {
			t.Fatal(err)
		}
	})
}
