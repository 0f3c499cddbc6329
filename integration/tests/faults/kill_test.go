package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

var (
	six  = []string{"a", "b", "c", "d", "e", "f"}
	four = []string{"a", "b", "c", "d"}
)

// life is what every round goes through: a deployment in waves behind a hook,
// an update that prunes, a sync that a person asks for, an edit that is
// healed, and the deletion.
func (r *round) life() {
	r.t.Helper()
	r.push("one", six)
	r.create(true)
	r.settled()
	r.push("two", four)
	r.settled()
	r.sync(r.name + "-sync")
	r.settled()
	r.edit("a", "two")
	r.settled()
	r.rest()
	r.collect()
	r.remove()
	r.collect()
	r.check()
}

// apart is a life whose update comes to the agent without the objects' bodies:
// it was away, and so was the hub meanwhile, which sends along what it has
// just stored and nothing else. The agent has to fetch them.
func (r *round) apart() {
	r.t.Helper()
	r.push("apart, one", six)
	r.create(true)
	r.settled()
	a := s.Agents[clusterName]
	resume := agent.pause()
	if err := a.Stop(); err != nil {
		r.t.Fatal(err)
	}
	r.push("apart, two", four) // no other life had these
	r.refreshed()
	back := hub.pause()
	if err := s.Hub.Kill(); err != nil {
		r.t.Fatal(err)
	}
	if err := s.Hub.Start(within(r.t, waitLimit)); err != nil {
		r.t.Fatal(err)
	}
	back()
	if err := a.Start(within(r.t, waitLimit)); err != nil {
		r.t.Fatal(err)
	}
	resume()
	r.settled()
	r.rest()
	r.collect()
	r.remove()
	r.collect()
	r.check()
}

// exits ends a process at the next hit of each point, however often it has
// come by already.
func exits(points []string) map[string]string {
	out := map[string]string{}
	for _, p := range points {
		out[p] = "exit:*"
	}
	return out
}

func TestKilledEverywhere(t *testing.T) {
	begin := time.Now()
	hub.arm(t, exits(hub.points))
	agent.arm(t, exits(agent.points))
	t.Cleanup(func() { hub.arm(t, nil); agent.arm(t, nil) })
	t.Run("FT-H1 FT-A1 INV-1 INV-2 INV-3 INV-4 INV-8 INV-10 INV-11 kill -9 at every failpoint of hub and agent, one after the other", func(t *testing.T) {
		// What one life does not come by, such as fetching blobs, another may.
		for i := 0; i < 3 && len(hub.left())+len(agent.left()) > 0; i++ {
			newRound(t, fmt.Sprintf("everywhere-%d", i), 0).life()
		}
		if len(hub.left())+len(agent.left()) > 0 {
			newRound(t, "everywhere-blobs", 0).apart()
		}
		for _, v := range []*victim{hub, agent} {
			t.Logf("%s: %d of %d failpoints hit, each with kill -9", v.name, len(v.killed()), len(v.points))
			if left := v.left(); len(left) > 0 {
				t.Errorf("%s was not killed at %v", v.name, left)
			}
			for p := range v.visited() {
				if !slices.Contains(v.points, p) {
					t.Errorf("%s passed the unknown point %s", v.name, p)
				}
			}
		}
		t.Logf("%d kills in %.0f s", len(hub.killed())+len(agent.killed()), time.Since(begin).Seconds())
	})
	t.Run("INV-5 INV-10 the agent has the hub's desired state, and nothing is open", func(t *testing.T) { atRest(t) })
}

// atRest waits until the agent's memory is what the hub's log says. What comes
// last, such as that an application is gone, may still be on its way.
func atRest(t *testing.T) {
	t.Helper()
	err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		var c struct{ Seq, AckedSeq int64 }
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/"+clusterName, nil, &c); err != nil {
			return err
		}
		if c.Seq != c.AckedSeq {
			return fmt.Errorf("the agent has row %d of %d", c.AckedSeq, c.Seq)
		}
		return memoryEqualsLog(t)
	})
	if err != nil {
		t.Errorf("%v; still armed %v %v", err, hub.left(), agent.left())
	}
}

// memoryEqualsLog compares the agent's memory with the hub's log.
func memoryEqualsLog(t *testing.T) error {
	t.Helper()
	open, cursor, root := agentMemory(t)
	if len(open) > 0 {
		return fmt.Errorf("the agent holds %d operations as open", len(open))
	}
	conn := database(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	cluster := cluster(t, conn)
	var seq int64
	if err := conn.QueryRow(t.Context(), "SELECT seq FROM log_head WHERE cluster_id = $1", cluster).Scan(&seq); err != nil {
		return err
	}
	if uint64(seq) != cursor.Seq {
		return fmt.Errorf("the agent is at row %d, the log at %d", cursor.Seq, seq)
	}
	leaves := map[string][32]byte{}
	for _, x := range rows[struct {
		App  string
		Leaf []byte
	}](t, conn, "SELECT application_id::text, leaf FROM desired_head WHERE cluster_id = $1", cluster) {
		leaves[x.App] = [32]byte(x.Leaf)
	}
	if !bytes.Equal(root, hashchain.Root(leaves)) {
		return errors.New("hub and agent have different roots")
	}
	return nil
}
