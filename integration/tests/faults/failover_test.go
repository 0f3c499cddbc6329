package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// standby copies the database's server.
func standby(t *testing.T, waits bool) *postgres.Server {
	t.Helper()
	p, err := s.Postgres.Standby(within(t, waitLimit), waits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// failOver kills the server and makes the standby the database, at the same
// address.
func failOver(ctx context.Context, to *postgres.Server) error {
	if err := s.Postgres.Halt(postgres.StopImmediate); err != nil {
		return err
	}
	s.SQL.Point(to.Address())
	s.SQL.Cut()
	return to.Promote(ctx)
}

// adopt makes the promoted server the one that the tests ask.
func adopt(t *testing.T, to *postgres.Server) {
	t.Helper()
	old := s.Postgres
	s.Postgres = to
	if err := old.Stop(postgres.StopImmediate); err != nil {
		t.Error(err)
	}
}

// caughtUp waits until a standby has all that was committed.
func caughtUp(t *testing.T, p *postgres.Server) {
	t.Helper()
	var want string
	if err := database(t).QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&want); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), p.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	err = poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		var there bool
		err := conn.QueryRow(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)", want).Scan(&there)
		if err == nil && !there {
			err = errors.New("the standby lags")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// creations counts what was created of a resource in a namespace.
func creations(namespace, resource string) int {
	n := 0
	for _, e := range s.Ledgers[clusterName].In(namespace) {
		if e.Resource == resource && e.Code == http.StatusCreated && e.Mutates() {
			n++
		}
	}
	return n
}

// held waits until the hub has seen that the agent's past is not its own.
func (r *round) held(ctx context.Context) {
	r.t.Helper()
	err := poll.Until(ctx, func(ctx context.Context) error {
		var c struct {
			Held   bool `json:"held"`
			Rewind *struct {
				Reason string `json:"reason"`
			} `json:"rewind"`
		}
		err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/"+clusterName, nil, &c)
		if err == nil && (c.Rewind == nil || !c.Held) {
			err = fmt.Errorf("rewind %v, held %v", c.Rewind, c.Held)
		}
		return err
	})
	if err != nil {
		r.t.Fatalf("the hub does not say that its database went back: %v\n%s", err, r.story())
	}
}

func TestPostgresFailsOver(t *testing.T) {
	t.Run("FT-D3 failover to a synchronous standby in the middle of a commit: nothing is lost and no decision is needed", func(t *testing.T) {
		next := standby(t, true)
		busy := make(chan struct{}, 1)
		commits := 0 // of transactions that may write
		s.SQL.Decide(func(x faultproxy.Statement) faultproxy.SQLAct {
			if x.Tx && regexp.MustCompile(`(?i)^commit`).MatchString(x.SQL) {
				if commits++; commits >= 10 {
					select {
					case busy <- struct{}{}:
					default:
					}
				}
			}
			return faultproxy.SQLAct{}
		})
		done := make(chan error, 1)
		ctx := within(t, waitLimit)
		go func() {
			select {
			case <-busy:
				done <- failOver(ctx, next)
			case <-ctx.Done():
				done <- ctx.Err()
			}
		}()
		r := newRound(t, "failover", 0)
		r.push("one", six)
		r.create(true)
		r.settled()
		r.push("two", four)
		r.settled()
		r.sync("failover-sync")
		r.settled()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s.SQL.Decide(nil)
		adopt(t, next)
		r.edit("a", "two")
		r.settled()
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
		atRest(t)
	})
	t.Run("FT-D3 INV-3 INV-8 failover to a standby without the last commits under a running hub: agents stop until an admin decides", func(t *testing.T) {
		r := newRound(t, "lagging", 0)
		r.push("one", six)
		r.create(true)
		r.settled()
		r.rest()
		next := standby(t, false)
		caughtUp(t, next)
		if err := next.Halt(postgres.StopFast); err != nil {
			t.Fatal(err)
		}
		r.push("two", four) // prunes two objects; the standby never hears of it
		r.settled()
		r.rest()
		jobs := creations("lagging", "jobs")

		ctx := within(t, waitLimit)
		if err := s.Postgres.Halt(postgres.StopImmediate); err != nil {
			t.Fatal(err)
		}
		if err := next.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		if err := failOver(ctx, next); err != nil {
			t.Fatal(err)
		}
		adopt(t, next)
		r.held(ctx)
		r.push("three", []string{"a"}) // would prune three more
		r.refreshed()
		// What the agent enforces is what it accepted, healed as ever.
		for _, name := range four {
			r.edit(name, "two")
		}
		if err := s.API.Do(ctx, http.MethodPost, "/api/v1/clusters/"+clusterName+"/accept-hub", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		r.awaitValue("a", "three")
		r.settled()
		r.rest()
		if again := creations("lagging", "jobs"); again != jobs+1 {
			t.Errorf("%d hook Jobs before and %d after, want one for the new version and none again", jobs, again)
		}
		r.remove()
		atRest(t)
	})
}
