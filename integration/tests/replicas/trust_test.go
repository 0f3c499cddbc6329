package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/shared/fault"
)

// cutWithin is how long a revoked agent may stay, wherever it is attached.
const cutWithin = 5 * time.Second

func TestRevokedElsewhere(t *testing.T) {
	for i, act := range []struct {
		name, method, path string
	}{
		{"revoked", http.MethodPost, "/revoke"},
		{"removed with its cluster", http.MethodDelete, ""},
	} {
		for at := range s.Hubs {
			t.Run(fmt.Sprintf("SEC-K5 an agent at replica %d that is %s through the other one is cut within 5 s", at, act.name), func(t *testing.T) {
				cluster := fmt.Sprintf("revoked-%d-%d", i, at)
				v := enrol(t, cluster)
				e := v.run(t, s.Hubs[at], cluster, "one", true)
				e.attached(t, at)
				if err := only(s.Hubs[1-at]).Do(within(t, time.Minute), act.method, "/api/v1/clusters/"+cluster+act.path, nil, nil); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				reason := e.ended(t)
				took := time.Since(begin)
				t.Logf("measured: cut %.3f s after the answer", took.Seconds())
				if fault.KindOf(reason) != fault.Denied || !strings.Contains(reason.Error(), "revoked") {
					t.Errorf("the agent hears %v", reason)
				}
				if took > cutWithin {
					t.Errorf("it was cut after %s", took)
				}
				// And it stays out, at either.
				e.stop()
				for j, h := range s.Hubs {
					if err := v.run(t, h, cluster, "two", true).refused(t); fault.KindOf(err) != fault.Denied {
						t.Errorf("at replica %d a revoked agent hears %v", j, err)
					}
				}
			})
		}
	}
}

func TestDuplicateElsewhere(t *testing.T) {
	t.Run("FT-L8 while one agent holds the Lease no other is admitted, at any replica", func(t *testing.T) {
		v := enrol(t, "leader")
		first := v.run(t, s.Hubs[0], "leader", "first", true)
		first.attached(t, 0)
		second := v.run(t, s.Hubs[1], "leader", "second", false)
		if err := second.refused(t); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "Lease") {
			t.Errorf("the second one hears %v", err)
		}
		for _, h := range s.Hubs {
			see(t, h, "leader", "people see the second one", func(p place) bool { return p.Refused != nil && p.Connection == "Connected" })
		}
		select {
		case err := <-first.closed:
			t.Errorf("the first one was cut: %v", err)
		default:
		}
	})
	t.Run("FT-L8 without a Lease the newer one stays, and the older one is cut at the other replica", func(t *testing.T) {
		v := enrol(t, "newer")
		first := v.run(t, s.Hubs[0], "newer", "first", false)
		first.attached(t, 0)
		second := v.run(t, s.Hubs[1], "newer", "second", false)
		second.attached(t, 1)
		if err := first.ended(t); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the first one hears %v", err)
		}
		// Nor does it come back beside the other, at either replica.
		first.stop()
		for j, h := range s.Hubs {
			back := v.run(t, h, "newer", "first", false)
			if err := back.refused(t); fault.KindOf(err) != fault.Conflict {
				t.Errorf("at replica %d it hears %v", j, err)
			}
			back.stop()
		}
		select {
		case err := <-second.closed:
			t.Errorf("the second one was cut: %v", err)
		default:
		}
	})
	t.Run("FT-L9 a clone at one replica ends the original at the other, until an admin decides through either", func(t *testing.T) {
		v := enrol(t, "cloned")
		original := v.run(t, s.Hubs[0], "cloned", "original", true)
		original.attached(t, 0)
		clone := v.run(t, s.Hubs[1], "clone of it", "clone", true)
		for who, hears := range map[string]error{"clone": clone.refused(t), "original": original.ended(t)} {
			if fault.KindOf(hears) != fault.Denied || !strings.Contains(hears.Error(), "cloned") {
				t.Errorf("the %s hears %v", who, hears)
			}
		}
		clone.stop()
		original.stop()
		for _, h := range s.Hubs {
			see(t, h, "cloned", "people see the clone", func(p place) bool { return p.Quarantine != nil })
		}
		keep := map[string]any{"fingerprint": "cloned"}
		if err := only(s.Hubs[1]).Do(within(t, time.Minute), http.MethodPost, "/api/v1/clusters/cloned/keep", keep, nil); err != nil {
			t.Fatal(err)
		}
		// An agent that is refused waits for half a minute; the other replica
		// hears of the decision a moment after it was made.
		back := v.run(t, s.Hubs[0], "cloned", "back", true)
		err := poll.Until(within(t, 2*time.Minute), func(context.Context) error {
			state := back.client.State()
			if fault.KindOf(state.Problem) == fault.Denied {
				back.stop()
				back = v.run(t, s.Hubs[0], "cloned", "back", true)
			}
			if !state.Connected {
				return fmt.Errorf("state %+v", state)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the original does not come back: %v", err)
		}
		if err := v.run(t, s.Hubs[1], "clone of it", "again", true).refused(t); fault.KindOf(err) != fault.Denied {
			t.Errorf("the clone hears %v", err)
		}
	})
}

// TestRewindElsewhere is the last one: it takes the database back.
func TestRewindElsewhere(t *testing.T) {
	repo := repository(t, "rewind", map[string]string{"app/a.yaml": configMap("a", "one"), "app/b.yaml": configMap("b", "one")})
	deploy(t, "rewind", repo.URL(), "app")
	settled(t, "rewind")
	a, b := s.Hubs[0], s.Hubs[1]
	stop := func(hubs ...*stack.Hub) {
		t.Helper()
		for _, h := range hubs {
			if err := h.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(hubs ...*stack.Hub) {
		t.Helper()
		for _, h := range hubs {
			if err := h.Start(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			restarted(t, h)
		}
	}
	database := func(steps ...error) {
		t.Helper()
		if err := errors.Join(steps...); err != nil {
			t.Fatal(err)
		}
	}
	cluster := s.Clusters["in-cluster"]
	holds := func(want string) func(*unstructured.Unstructured) error {
		return func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "v"); got != want {
				return fmt.Errorf("the value is %q, not %q", got, want)
			}
			return nil
		}
	}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	untouched := func() {
		t.Helper()
		for name, want := range map[string]string{"a": "two", "b": "one"} {
			o, err := cluster.Dynamic().Resource(maps).Namespace("rewind").Get(t.Context(), name, metav1.GetOptions{})
			if err == nil {
				err = holds(want)(o)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	stop(a, b)
	_, err := s.Postgres.CloneDatabase(within(t, time.Minute), "backup", "capstan")
	database(err)
	start(a, b)
	two, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")})
	if err != nil {
		t.Fatal(err)
	}
	at(t, "rewind", two)
	stop(a, b)
	database(s.Postgres.DropDatabase(within(t, time.Minute), "capstan"))
	_, err = s.Postgres.CloneDatabase(within(t, time.Minute), "capstan", "backup")
	database(err, s.Postgres.DropDatabase(within(t, time.Minute), "backup"))

	proven := func(p place) bool { return p.Held && p.Rewind != nil && p.Rewind.Proven && p.Connection == "Connected" }
	start(a)
	see(t, a, "in-cluster", "replica 0 finds that the hub was rewound", proven)
	t.Run("FT-D9 INV-3 a rewind that one replica has found holds at another: nothing is pruned or rolled back", func(t *testing.T) {
		start(b)
		see(t, b, "in-cluster", "the other replica says so too", proven)
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "three", Write: map[string]string{"app/a.yaml": configMap("a", "three")}, Remove: []string{"app/b.yaml"}}); err != nil {
			t.Fatal(err)
		}
		stop(a) // the agent goes over
		see(t, b, "in-cluster", "it holds the agent now", func(p place) bool {
			return proven(p) && queryOne[bool](t, `SELECT EXISTS (SELECT FROM directory.agent_attachment
			WHERE session_id IS NOT NULL AND until > now() AND replica LIKE 'replica-1.%')`)
		})
		err := poll.Until(within(t, 3*time.Minute), func(ctx context.Context) error {
			x, err := only(b).Get(ctx, "rewind")
			if err == nil && (x.Status.OperationState == nil || x.Status.OperationState.Phase != "Pending") {
				err = fmt.Errorf("operation %+v", x.Status.OperationState)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		untouched()
	})
	t.Run("FT-D9 enrolment is closed at both", func(t *testing.T) {
		start(a)
		for i, h := range s.Hubs {
			err := only(h).Do(within(t, time.Minute), http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": "another"}, nil)
			if err == nil || !strings.Contains(err.Error(), "restored from a backup") {
				t.Errorf("replica %d: %v", i, err)
			}
		}
		untouched()
	})
	t.Run("FT-D9 an admin decides through the replica without the agent's connection, and everything continues", func(t *testing.T) {
		_, other := holder(t)
		if err := only(other).Do(within(t, time.Minute), http.MethodPost, "/api/v1/clusters/in-cluster/accept-hub", nil, nil); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err := cluster.WaitFor(within(t, 3*time.Minute), maps, "rewind", "a", holds("three"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("measured: the agent goes on %.1f s after the decision", time.Since(begin).Seconds())
		for _, h := range s.Hubs {
			see(t, h, "in-cluster", "all is well", func(p place) bool { return p.Rewind == nil && !p.Held && p.Connection == "Connected" })
		}
	})
}
