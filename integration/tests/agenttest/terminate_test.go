package agenttest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// A halfway is the creation of a hook that the API server has carried out, and
// whose answer has not come back.
type halfway struct {
	begun   chan struct{} // the server has made it
	release chan struct{} // closed: its answer comes back
}

// halfway holds the answers to the creation of Jobs. A request is broken off
// when its caller ends it; the Job is there all the same.
func (w *world) halfway() *halfway {
	w.t.Helper()
	h := &halfway{begun: make(chan struct{}), release: make(chan struct{})}
	var once sync.Once
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		create := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") && r.URL.Query().Get("dryRun") == ""
		if !create || err != nil || resp.StatusCode != http.StatusCreated {
			return resp, err
		}
		once.Do(func() { close(h.begun) })
		select {
		case <-h.release:
			return resp, nil
		case <-r.Context().Done():
			_ = resp.Body.Close()
			return nil, r.Context().Err()
		}
	})
	w.t.Cleanup(func() { w.faults.set(nil) })
	return h
}

func TestTerminateDuringTheCreationOfAHook(t *testing.T) {
	w := newWorld(t)
	a, other := w.application(), w.application()
	a.deploy(configMap("web", "red"))
	terminated := func(id string, n int) {
		t.Helper()
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: id, Actor: "alice"}))
		// What comes later in the log is done, so the agent has heard of it.
		other.deploy(configMap("other", fmt.Sprintf("color-%d", n)))
	}
	ended := func(id, name string) {
		t.Helper()
		if op := w.ended(id, "Failed"); !strings.Contains(op.GetMessage(), "terminated by alice") {
			t.Errorf("message is %q", op.GetMessage())
		}
		w.waitDeleted(jobs, name)
		if err := data("color", "red")(w.get(configMaps, "web")); err != nil {
			t.Errorf("the operation went on: %v", err)
		}
	}
	for n, policy := range []string{"BeforeHookCreation", "HookSucceeded", "HookFailed"} {
		t.Run("SYNC-09 INV-10 FT-K1 a hook whose creation is under way when its operation is terminated is taken away: "+policy, func(t *testing.T) {
			name := "made-" + strings.ToLower(policy)
			h := w.halfway()
			id := a.begin(hookJob(name, "PreSync", policy)+configMap("web", "blue"), nil)
			<-h.begun
			terminated(id, n)
			close(h.release)
			ended(id, name)
		})
	}
	t.Run("SYNC-09 FT-K1 one without a reply is deleted, too, and the next operation creates its own", func(t *testing.T) {
		h := w.halfway()
		id := a.begin(hookJob("lost", "PreSync", "HookSucceeded")+configMap("web", "blue"), nil)
		<-h.begun
		terminated(id, 9)
		ended(id, "lost")
		w.faults.set(nil)
		id = a.begin(hookJob("lost", "PreSync", "HookSucceeded")+configMap("web", "green"), nil)
		w.live(jobs, "lost", exists)
		w.finish("lost", "Complete")
		w.ended(id, "Succeeded")
		w.waitDeleted(jobs, "lost")
		w.live(configMaps, "web", data("color", "green"))
	})
}
