package faults_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/tests/faults"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func valueIs(want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedString(o.Object, "data", "v"); got != want {
			return fmt.Errorf("its value is %q", got)
		}
		return nil
	}
}

// database reads past all rights, and not through the wire that fails.
func database(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func rows[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	found, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(found, pgx.RowToStructByPos[T])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cluster is the id of the cluster that rounds are deployed to. Other tests
// make clusters as well, each with a log of its own.
func cluster(t *testing.T, conn *pgx.Conn) (id string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT id::text FROM cluster WHERE name = $1", clusterName).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// collect takes down what the database has of the application. It is called
// before the deletion, which takes operations and history along, and after.
func (r *round) collect() {
	r.t.Helper()
	conn := database(r.t)
	defer conn.Close(context.WithoutCancel(r.t.Context()))
	cluster := cluster(r.t, conn)
	if r.run.Application == "" {
		if err := conn.QueryRow(r.t.Context(), "SELECT id::text FROM application WHERE name = $1", r.name).Scan(&r.run.Application); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := conn.QueryRow(r.t.Context(), "SELECT incarnation FROM log_head WHERE cluster_id = $1", cluster).Scan(&r.run.Incarnation); err != nil {
		r.t.Fatal(err)
	}
	if err := conn.QueryRow(r.t.Context(), "SELECT coalesce((SELECT seq FROM log_checkpoint WHERE cluster_id = $1 AND chain = $2), 0)", cluster, hashchain.First(r.run.Incarnation)).Scan(&r.run.Begin); err != nil {
		r.t.Fatal(err)
	}
	r.run.Rows = rows[faults.Row](r.t, conn, "SELECT seq, kind::int, application_id::text, coalesce(operation_id::text, ''), body, chain, created_at FROM log_row WHERE cluster_id = $1 AND seq > $2 ORDER BY seq", cluster, r.run.Begin)
	r.run.Audit = rows[faults.Audit](r.t, conn, "SELECT seq, action, resource, object, result, coalesce(detail::text, '') FROM audit_record ORDER BY tenant_id, seq")
	r.run.Ledger = s.Ledgers[clusterName].In(r.name)
	if r.run.Deleted {
		return
	}
	r.run.Operations = rows[faults.Operation](r.t, conn, `SELECT id::text, application_id::text, kind, phase, revision, fence, attempt, created_at, started_at, finished_at
		FROM operation WHERE application_id = $1 ORDER BY created_at, id`, r.run.Application)
	r.run.History = rows[faults.History](r.t, conn, "SELECT id, application_id::text, coalesce(operation_id::text, ''), revision FROM history WHERE application_id = $1 ORDER BY id", r.run.Application)
}

// rest waits until the hub has drawn its conclusions: no outcome waits, and
// each success is in the history.
func (r *round) rest() {
	r.t.Helper()
	conn := database(r.t)
	defer conn.Close(context.WithoutCancel(r.t.Context()))
	err := poll.Until(within(r.t, waitLimit), func(ctx context.Context) error {
		var waiting int
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM work.item i JOIN operation o ON i.key = o.id AND i.kind = 'outcome' JOIN application a ON a.id = o.application_id WHERE a.name = $1)
			+ (SELECT count(*) FROM operation o JOIN application a ON a.id = o.application_id WHERE a.name = $1 AND o.phase NOT IN ('Succeeded', 'Failed', 'Error'))`, r.name).Scan(&waiting)
		if err == nil && waiting > 0 {
			err = fmt.Errorf("%d operations are not settled", waiting)
		}
		return err
	})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.story())
	}
}

// agentMemory stops the agent, reads what it remembers and starts it again.
func agentMemory(t *testing.T) (open []inventory.Operation, cursor inventory.Cursor, root []byte) {
	t.Helper()
	resume := agent.pause()
	defer resume()
	a := s.Agents[clusterName]
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	store, err := inventory.Open(a.StateDir())
	if err != nil {
		t.Fatal(err)
	}
	open, cursor, root = store.OpenOperations(), store.Cursor(), store.Root()
	if err := errors.Join(store.Close(), a.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	return open, cursor, root
}
