package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// refreshed waits until the newest version is what could be deployed.
func (r *round) refreshed() {
	r.t.Helper()
	err := poll.Until(within(r.t, waitLimit), func(ctx context.Context) error {
		x, err := s.API.Get(ctx, r.name)
		if err == nil && x.Status.Sync.Revision != r.run.Versions[len(r.run.Versions)-1].Revision {
			err = fmt.Errorf("revision %q", x.Status.Sync.Revision)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestDatabaseIsUnreliable(t *testing.T) {
	seed := time.Now().UnixNano()
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	var mu sync.Mutex
	faults := 0
	s.SQL.Decide(func(faultproxy.Statement) faultproxy.SQLAct {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(150) != 0 {
			return faultproxy.SQLAct{}
		}
		faults++
		return []faultproxy.SQLAct{{CutBefore: true}, {Lose: true}, {Error: "40001"}, {Error: "40P01"}, {Error: "57014"}, {Delay: 50 * time.Millisecond}}[random.IntN(6)]
	})
	t.Cleanup(func() { s.SQL.Decide(nil) })
	t.Run("FT-D1 FT-D2 FT-D4 FT-D5 one of 150 statements fails or loses its reply during a whole lifecycle", func(t *testing.T) {
		newRound(t, "unreliable", seed).life()
		t.Logf("%d faults, seed %d", faults, seed)
		s.SQL.Decide(nil)
		atRest(t)
	})
}

func TestPostgresRestarts(t *testing.T) {
	t.Run("FT-D1 the server is killed and restarts during the transactions of a whole lifecycle", func(t *testing.T) {
		stop := make(chan struct{})
		var over sync.WaitGroup
		restarts := 0
		// Each restart waits for a commit to be under way.
		busy := make(chan struct{}, 1)
		s.SQL.Decide(func(x faultproxy.Statement) faultproxy.SQLAct {
			if x.Tx && regexp.MustCompile(`(?i)^commit`).MatchString(x.SQL) {
				select {
				case busy <- struct{}{}:
				default:
				}
			}
			return faultproxy.SQLAct{}
		})
		over.Go(func() {
			for range 3 {
				select {
				case <-busy:
				case <-stop:
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
				if err := s.Postgres.Restart(ctx, postgres.StopImmediate); err != nil {
					t.Error(err)
				}
				cancel()
				restarts++
				for range 20 { // let some transactions through before the next one
					select {
					case <-busy:
					case <-stop:
						return
					}
				}
			}
		})
		r := newRound(t, "restarts", 0)
		r.push("one", six)
		r.create(true)
		r.settled()
		r.push("two", four)
		r.settled()
		r.sync("restarts-sync")
		r.settled()
		close(stop)
		over.Wait()
		s.SQL.Decide(nil)
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
		atRest(t)
		t.Logf("%d restarts", restarts)
	})
}
