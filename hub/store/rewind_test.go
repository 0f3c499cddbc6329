package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestRewind(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w, other := build(t, db, "acme", "acme"), build(t, db, "other", "other")
	s := db.System()
	in := func(of *world, do func(ctx context.Context, tx *store.Tenant) error) {
		t.Helper()
		storetest.In(t, db, of.tenant, do)
	}
	enrol := func(of *world, secret string) error {
		return db.InTenant(t.Context(), of.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: of.cluster.ID, Prefix: secret, CreatedBy: "x", ExpiresAt: now().Add(time.Hour)}, sha256.Sum256([]byte(secret)))
			return err
		})
	}
	note := func(proven bool) {
		in(w, func(ctx context.Context, tx *store.Tenant) error {
			if noted, err := tx.NoteRewind(ctx, w.cluster.ID, hub.Rewind{Reason: "behind", Proven: proven, AgentIncarnation: "agent's", AgentSeq: 70, SeenAt: now()}); err != nil || !noted {
				t.Fatalf("NoteRewind() = %v, %v", noted, err)
			}
			return nil
		})
	}
	note(false)
	t.Run("SEC-K3 a claim without a proof stops no other agent", func(t *testing.T) {
		check(t, enrol(other, "open"))
		in(other, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.ClusterByID(ctx, other.cluster.ID)); c.Held || c.Rewind != nil {
				t.Errorf("cluster %+v", c)
			}
			return nil
		})
	})
	note(true)
	t.Run("FT-D9 a proof closes enrolment for all, and open tokens become invalid", func(t *testing.T) {
		if err := enrol(other, "late"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("CreateEnrolment() = %v", err)
		}
		if _, err := s.EnrolmentByHash(t.Context(), sha256.Sum256([]byte("open"))); fault.KindOf(err) != fault.Conflict {
			t.Errorf("EnrolmentByHash() = %v", err)
		}
		in(other, func(ctx context.Context, tx *store.Tenant) error {
			if _, head, err := tx.RowsAfter(ctx, other.cluster.ID, 0, 1); err != nil || !head.Held {
				t.Errorf("head %+v, %v", head, err)
			}
			return nil
		})
	})
	t.Run("INV-8 accepting begins a new log that continues from the agent's number", func(t *testing.T) {
		in(w, func(ctx context.Context, tx *store.Tenant) error {
			before := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{w.cluster.ID}))[w.cluster.ID]
			r := must[hub.Rewind](t)(tx.AcceptHub(ctx, w.cluster.ID, "ada", now()))
			after := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{w.cluster.ID}))[w.cluster.ID]
			if r.AgentSeq != 70 || after.Seq != 71 || after.Incarnation == before.Incarnation {
				t.Errorf("noted %+v, head %+v", r, after)
			}
			for _, incarnation := range []string{"agent's", before.Incarnation} {
				if by, _, given, err := tx.GivenUp(ctx, w.cluster.ID, incarnation); err != nil || !given || by != "ada" {
					t.Errorf("GivenUp(%q) = %q %v %v", incarnation, by, given, err)
				}
			}
			if _, _, given, _ := tx.GivenUp(ctx, w.cluster.ID, after.Incarnation); given {
				t.Error("the present log is given up")
			}
			if hash, found, err := tx.HashAt(ctx, w.cluster.ID, 71); err != nil || !found || !bytes.Equal(hash, after.Chain) {
				t.Errorf("HashAt(71) = %x %v %v", hash, found, err)
			}
			if _, err := tx.AcceptHub(ctx, w.cluster.ID, "ada", now()); fault.KindOf(err) != fault.Conflict {
				t.Errorf("accepted twice: %v", err)
			}
			return nil
		})
		if _, err := s.EnrolmentByHash(t.Context(), sha256.Sum256([]byte("open"))); fault.KindOf(err) != fault.Missing {
			t.Errorf("a token of before is good again: %v", err)
		}
		check(t, enrol(other, "fresh"))
	})
	t.Run("FT-D9 a stream that checked its agent before the decision does not undo it", func(t *testing.T) {
		in(w, func(ctx context.Context, tx *store.Tenant) error {
			noted, err := tx.NoteRewind(ctx, w.cluster.ID, hub.Rewind{Reason: "behind", Proven: true, AgentIncarnation: "agent's", AgentSeq: 70, SeenAt: now()})
			if r := must[*hub.Rewind](t)(tx.Rewind(ctx, w.cluster.ID)); err != nil || noted || r != nil {
				t.Errorf("NoteRewind() = %v, %v; noted is %+v", noted, err, r)
			}
			return nil
		})
		check(t, enrol(other, "fresher"))
	})
	t.Run("INV-8 the numbers of a new log leave a gap, or agents would refuse its rows as forged", func(t *testing.T) {
		storetest.In(t, db, other.tenant, func(ctx context.Context, tx *store.Tenant) error {
			id := other.cluster.ID
			must[bool](t)(tx.NoteRewind(ctx, id, hub.Rewind{Reason: "behind", AgentIncarnation: "agent's", AgentSeq: 1, SeenAt: now()}))
			old, _, err := tx.RowsAfter(ctx, id, 0, 10)
			check(t, err)
			must[hub.Rewind](t)(tx.AcceptHub(ctx, id, "ada", now()))
			head := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{id}))[id]
			check(t, tx.AppendRows(ctx, id, rows(head, hub.LogRow{Kind: hub.RowTerminate, Application: other.app.ID, Operation: other.operation.ID, Body: []byte("t")})))
			all, _, err := tx.RowsAfter(ctx, id, 0, 10)
			check(t, err)
			if len(old) == 0 || len(all) != len(old)+1 {
				t.Fatalf("rows %v, then %v", old, all)
			}
			if last, first := all[len(old)-1].Seq, all[len(old)].Seq; first < last+2 {
				t.Errorf("the first new row is %d, the last one of before %d", first, last)
			}
			if hash, found, err := tx.HashAt(ctx, id, head.Seq); err != nil || !found || !bytes.Equal(hash, hashchain.First(head.Incarnation)) {
				t.Errorf("HashAt(%d) = %x %v %v", head.Seq, hash, found, err)
			}
			return nil
		})
	})
	t.Run("INV-8 generations only rise", func(t *testing.T) {
		in(w, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.RaiseGenerations(ctx, map[hub.ApplicationID]int64{w.app.ID: 50}))
			return tx.RaiseGenerations(ctx, map[hub.ApplicationID]int64{w.app.ID: 9})
		})
		if a := status(t, db, w); a.Generation != 50 {
			t.Errorf("generation %d", a.Generation)
		}
	})
	t.Run("SEC-K5 revocations are merged once", func(t *testing.T) {
		before := must[int64](t)(s.RevocationVersion(t.Context()))
		of := []hub.Revocation{{AgentID: "lost", Until: now().Add(time.Hour)}, {AgentID: "over", Until: now().Add(-time.Hour)}}
		check(t, s.MergeRevocations(t.Context(), w.tenant, of))
		check(t, s.MergeRevocations(t.Context(), w.tenant, of))
		n := 0
		for _, r := range must[[]hub.Revocation](t)(s.Revocations(t.Context(), now())) {
			if r.AgentID == "lost" {
				n++
			}
		}
		if after := must[int64](t)(s.RevocationVersion(t.Context())); n != 1 || after != before+1 {
			t.Errorf("%d rows, version %d → %d", n, before, after)
		}
	})
}

func TestTwoWithOneIdentity(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	s := db.System()
	connect := func(session, epoch, instance string, leader bool) error {
		return s.Connected(t.Context(), hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, Replica: "r", Epoch: epoch, Instance: instance,
			Leader: leader, Fingerprint: "uid", Address: "10.0.0.9:1", At: now()})
	}
	check(t, connect("s1", "e1", "one", true))
	t.Run("FT-L8 the one that holds the Lease stays", func(t *testing.T) {
		if err := connect("s2", "e2", "two", false); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the second one was let in: %v", err)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID)); c.Refused == nil || c.Refused.Address != "10.0.0.9:1" || !c.Connected {
				t.Errorf("cluster %+v", c)
			}
			return nil
		})
	})
	t.Run("FT-A2 a restarted process of the same directory gets the lease at once", func(t *testing.T) { check(t, connect("s3", "e3", "one", false)) })
	t.Run("FT-L8 the agent that gets the Lease stays, and the other one is not admitted", func(t *testing.T) {
		check(t, connect("s4", "e4", "two", true))
		if err := connect("s5", "e3", "one", false); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the replaced one came back: %v", err)
		}
		lost := must[[]string](t)(s.RenewAttachments(t.Context(), []hub.Heartbeat{{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s3", At: now()}}))
		if len(lost) != 1 {
			t.Errorf("lost %v", lost)
		}
	})
	t.Run("FT-L4 the late end of an older session does not end the newer one", func(t *testing.T) {
		check(t, s.Disconnected(t.Context(), w.tenant, w.cluster.ID, "s3"))
		if r := must[hub.AgentHome](t)(s.Attachment(t.Context(), w.tenant, w.cluster.ID)); r.Replica != "r" {
			t.Errorf("attachment %+v", r)
		}
	})
	t.Run("FT-L9 a quarantine refuses both until an admin decides which one stays", func(t *testing.T) {
		version := must[int64](t)(s.RevocationVersion(t.Context()))
		q := hub.Quarantine{Since: now(), Known: "uid", Other: "clone", Address: "10.0.0.7:1"}
		if !must[bool](t)(s.Quarantine(t.Context(), w.tenant, w.cluster.ID, q)) || must[bool](t)(s.Quarantine(t.Context(), w.tenant, w.cluster.ID, q)) {
			t.Error("news is said once")
		}
		if v := must[int64](t)(s.RevocationVersion(t.Context())); v != version+1 {
			t.Errorf("version %d → %d: other replicas do not hear of it", version, v)
		}
		if m := must[hub.Member](t)(s.Member(t.Context(), w.tenant, w.cluster.ID)); !m.Quarantined {
			t.Errorf("member %+v", m)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if _, err := tx.KeepCluster(ctx, w.cluster.ID, "third"); fault.KindOf(err) != fault.Invalid {
				t.Errorf("KeepCluster(third) = %v", err)
			}
			must[hub.Quarantine](t)(tx.KeepCluster(ctx, w.cluster.ID, "clone"))
			return nil
		})
		if m := must[hub.Member](t)(s.Member(t.Context(), w.tenant, w.cluster.ID)); m.Quarantined || m.Fingerprint != "clone" || len(m.Rejected) != 1 || m.Rejected[0] != "uid" {
			t.Errorf("member %+v", m)
		}
	})
}

func TestDeletionIsKnownByItsEnd(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.EndOperation(ctx, w.operation.ID, hub.Failed, "superseded"))
		w.operation = newOperation(w.app, "")
		w.operation.Kind, w.operation.Fence = hub.DeleteOperation, 5
		return tx.PutOperations(ctx, []hub.Operation{w.operation})
	})
	gone := func(seq, generation int64) hub.Observed {
		return observe(t, db, w, hub.Observation{Epoch: "acme", Seq: seq, Applications: []hub.ApplicationObservation{{Application: w.app.ID, Generation: generation, Gone: true, ComparedAt: now()}}})
	}
	t.Run("FT-A3 an agent that reports that nothing is left ends the deletion whose result it lost", func(t *testing.T) {
		if out := gone(2, 4); len(out.Over) != 0 {
			t.Error("INV-8 a word of before the deletion ended it")
		}
		if out := gone(3, 5); len(out.Over) != 1 || out.Over[0] != w.operation.ID {
			t.Errorf("over %v", out.Over)
		}
	})
}
