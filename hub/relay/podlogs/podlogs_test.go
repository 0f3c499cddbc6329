package podlogs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/relay/podlogs"
	"github.com/capstan-cd/capstan/shared/logtail"
)

const (
	pods  = 8
	lines = 5000 // of each pod
)

// agents have pods that write lines of their own, in batches of all sizes.
type agents struct{}

func (agents) Pods(context.Context, hub.Cluster, hub.ApplicationID, hub.ObjectRef, int) ([]hub.Pod, error) {
	var out []hub.Pod
	for i := range pods {
		out = append(out, hub.Pod{Namespace: "n", Name: fmt.Sprintf("p%d", i), Phase: "Succeeded", Containers: []hub.Container{{Name: "c"}}})
	}
	return out, nil
}

func (agents) Logs(ctx context.Context, _ hub.Cluster, _ hub.ApplicationID, of hub.LogTarget, _, _ bool, _ logtail.Options, emit logtail.Emit) error {
	size := 1
	for at := 0; at < lines && ctx.Err() == nil; size = size%700 + 13 {
		var batch []logtail.Line
		for ; at < lines && len(batch) < size; at++ {
			text := fmt.Sprintf("%s line %d %s", of.Pod, at, strings.Repeat("x", at%50))
			batch = append(batch, logtail.Line{Nano: int64(at + 1), Text: []byte(text)})
		}
		if err := emit(batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// TestMerge reads the logs of several pods at once. The race detector is the
// other half of it (make test RACE=1).
func TestMerge(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]bool{"read": false, "followed": true} {
		t.Run("LOG API-11 logs of several pods that are "+name+" lose and mix up no line", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next, all := map[string]int{}, 0
			done := errors.New("all lines came")
			err := podlogs.New(agents{}).Stream(ctx, podlogs.Request{Follow: follow, MaxPods: pods}, func(entries []podlogs.Entry) error {
				for _, e := range entries {
					if e.Notice != "" {
						continue
					}
					want := fmt.Sprintf("%s line %d %s", e.Pod, next[e.Pod], strings.Repeat("x", next[e.Pod]%50))
					if e.Text != want || e.Skipped != 0 {
						return fmt.Errorf("%s: got %q, want %q", e.Pod, e.Text, want)
					}
					next[e.Pod]++
					if all++; all == pods*lines {
						return done
					}
				}
				return nil
			})
			if err != nil && !errors.Is(err, done) || all != pods*lines {
				t.Errorf("%d lines of %d: %v", all, pods*lines, err)
			}
		})
	}
}

// waitingAgents answer which pods there are once they may.
type waitingAgents struct {
	agents
	may   chan struct{}
	asked *atomic.Int32
}

func (a waitingAgents) Pods(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ObjectRef, limit int) ([]hub.Pod, error) {
	a.asked.Add(1)
	<-a.may
	return a.agents.Pods(ctx, cluster, app, of, limit)
}

func TestPodsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	t.Run("LOG API-11 readers that begin together ask the agent once which pods there are, and those of other objects ask anew", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a := waitingAgents{may: make(chan struct{}), asked: new(atomic.Int32)}
			s := podlogs.New(a)
			gone, leave := context.WithCancel(t.Context())
			read := func(ctx context.Context, r podlogs.Request) {
				err := s.Stream(ctx, r, func([]podlogs.Entry) error { return nil })
				if ctx.Err() == nil && err != nil {
					t.Error(err)
				}
			}
			go read(gone, podlogs.Request{Application: "a", MaxPods: pods})
			synctest.Wait()
			for range 200 {
				go read(t.Context(), podlogs.Request{Application: "a", MaxPods: pods})
			}
			for _, other := range []podlogs.Request{{Application: "b"}, {Application: "a", Cluster: hub.Cluster{ID: "c"}}, {Application: "a", Of: hub.ObjectRef{Name: "n"}}} {
				other.MaxPods = pods
				go read(t.Context(), other)
			}
			leave() // the first reader's end is not that of the others
			synctest.Wait()
			if n := a.asked.Load(); n != 4 {
				t.Errorf("the agent was asked %d times, want 4", n)
			}
			close(a.may)
			synctest.Wait()
		})
	})
}
