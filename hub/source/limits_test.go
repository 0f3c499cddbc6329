package source_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func TestListingsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("REPO-06 the hub lists the refs of so many repositories at once as the operator has set", func(t *testing.T) {
		t.Parallel()
		const parallel, tenants = 4, 6
		s := gittest.New(t)
		origin := s.Repo("app")
		origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
		var now, most atomic.Int64
		full := make(chan struct{})
		s.Set("", func(http.ResponseWriter, *http.Request) bool {
			n := now.Add(1)
			defer now.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			if n == parallel {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			<-full // nobody goes on before as many are here as may be
			return false
		})
		w := newFakeWork()
		startLoop(t, source.LoopConfig{Parallel: parallel}, w, gittest.NewMirrors(t, git.Config{}), lifecycle.System{})
		ids := []hub.TenantID{}
		for i := range tenants {
			id := hub.TenantID("018f3c6e-0000-7000-8000-00000000000" + string(rune('1'+i)))
			ids = append(ids, id)
			for range 2 {
				w.add(id, origin.Hub(), hub.Credential{})
			}
		}
		for done := 0; done < 2*len(ids); {
			switch got := w.result(t); got.what {
			case "fetched":
				done++
			case "later":
				w.due <- got.item
			default:
				t.Fatalf("%+v", got)
			}
		}
		if n := most.Load(); n != parallel {
			t.Errorf("%d requests at once, want %d", n, parallel)
		}
	})
}
