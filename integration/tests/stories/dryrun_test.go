package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// An appState is all that a dry run must leave as it is.
type appState struct {
	Sync, Revision, Target, Accepted, Hold string
	By, Reason                             string // of the pause
	Objects                                map[string]string
	Log                                    []string // rows of the desired log that are no operations
	History                                []string
}

// appStateOf reads it once.
func appStateOf(t *testing.T, conn *pgx.Conn, name string) appState {
	t.Helper()
	ctx := within(t, waitLimit)
	x, err := s.API.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	out := appState{
		Sync: x.Status.Sync.Status, Revision: x.Status.Sync.Revision, Target: x.Status.Capstan.Target, Accepted: x.Status.Capstan.Accepted,
		Hold: x.Status.Capstan.Hold, Objects: map[string]string{}, History: entries(t, name),
	}
	if p := x.Status.Capstan.Paused; p != nil {
		out.By, out.Reason = p.By, p.Reason
	}
	list, err := s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		out.Objects[o.GetName()] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	rows, err := conn.Query(ctx, `SELECT r.kind || ' ' || encode(sha256(r.body), 'hex') FROM log_row r JOIN application a ON a.id = r.application_id
		WHERE a.name = $1 AND r.kind NOT IN (2, 3) ORDER BY r.seq`, name)
	if err != nil {
		t.Fatal(err)
	}
	if out.Log, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	return out
}

// ended waits until a person's newest operation is over, and gives its id.
func ended(t *testing.T, name, but string) string {
	t.Helper()
	x := condition(t, name, func(x stack.App) error {
		if op := x.Status.OperationState; op == nil || op.ID == but || op.Phase != "Succeeded" {
			return fmt.Errorf("the operation is %+v", op)
		}
		return nil
	})
	return x.Status.OperationState.ID
}

// What a rollback has paused must be there unharmed after any number of looks
// at what a sync would do.
func TestDryRunChangesNothing(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	const name = "dry-run"
	repo := repository(t, name, map[string]string{"app/a.yaml": configMap("a", "one"), "app/old.yaml": configMap("old", "one")})
	deploy(t, name, repo.URL(), "app", "")
	settled(t, name)
	change := gitserver.Change{Message: "two", Remove: []string{"app/old.yaml"}, Write: map[string]string{"app/a.yaml": configMap("a", "two"), "app/new.yaml": configMap("new", "two")}}
	second, err := repo.Push(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	live(t, name, "a", value("two"))
	condition(t, name, func(x stack.App) error {
		if x.Status.Sync.Revision != second || x.Status.Sync.Status != "Synced" || len(entries(t, name)) != 2 {
			return fmt.Errorf("it is at %+v", x.Status.Sync)
		}
		return nil
	})
	cli(t, "app", "rollback", name, "1", "--reason", "it was better")
	last := ended(t, name, "")
	condition(t, name, func(x stack.App) error {
		if p := x.Status.Capstan.Paused; p == nil || x.Status.Sync.Status != "OutOfSync" || len(entries(t, name)) != 3 {
			return errors.New("it is not paused and OutOfSync, or its history is not written yet")
		}
		return nil
	})
	before := appStateOf(t, conn, name)
	for title, args := range map[string][]string{
		"SYNC-04 a dry run of all leaves a rollback as it is": {"app", "sync", name, "--dry-run", "--prune"},
		"SYNC-04 SYNC-03 one of a single object too":          {"app", "sync", name, "--dry-run", "--resource", ":ConfigMap:a"},
		"SYNC-04 SYNC-06 one of another revision too":         {"app", "sync", name, "--dry-run", "--prune", "--revision", second},
		"SYNC-04 ROLL-01 one of another rollback too":         {"app", "rollback", name, "2", "--dry-run"},
	} {
		t.Run(title, func(t *testing.T) {
			cli(t, args...)
			last = ended(t, name, last)
			if diff := cmp.Diff(before, appStateOf(t, conn, name)); diff != "" {
				t.Errorf("the dry run changed something (-before +after):\n%s", diff)
			}
			if action := lastAudited(t, name); !strings.HasSuffix(action, "/dry-run") {
				t.Errorf("the audit log calls it %q", action)
			}
		})
	}
	t.Run("and it continues from there when it is resumed", func(t *testing.T) {
		cli(t, "app", "resume", name)
		live(t, name, "a", value("two"))
		settled(t, name)
	})
}

// lastAudited is what the audit log calls the newest action on an application.
func lastAudited(t *testing.T, name string) string {
	t.Helper()
	var audit struct {
		Items []struct{ Action, Object string }
	}
	if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/audit", nil, &audit); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(audit.Items, func(r struct{ Action, Object string }) bool {
		return strings.HasSuffix(r.Object, name) && !strings.HasPrefix(r.Action, "stream")
	})
	if i < 0 {
		t.Fatalf("the audit log does not name %s: %v", name, audit.Items)
	}
	return audit.Items[i].Action
}
