package store_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestLinkDirectory(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	ctx, s := t.Context(), db.System()
	join := sha256.Sum256([]byte(w.tenant + "join"))
	redeem := func(agent, serial, key string) error {
		return s.Redeem(ctx, hub.Redemption{Enrolment: w.enrolment.ID, Key: []byte(key), Fingerprint: "uid", At: now(), Address: "127.0.0.1",
			Certificate: hub.Certificate{Tenant: w.tenant, Cluster: w.cluster.ID, AgentID: agent, Serial: serial, NotBefore: now(), NotAfter: now().Add(time.Hour)}})
	}
	t.Run("a join token is used by one key", func(t *testing.T) {
		got := must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join))
		if got.ID != w.enrolment.ID || got.ClusterName != "acme" || got.Tenant != w.tenant || got.UsedAt != nil {
			t.Errorf("invitation %+v", got)
		}
		check(t, redeem("agent-1", "01", "key"))
		check(t, redeem("agent-1", "02", "key"))
		if err := redeem("agent-2", "03", "other key"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("another key: error %v, want Conflict", err)
		}
		got = must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join))
		if got.UsedAt == nil || got.AgentID != "agent-1" || string(got.Key) != "key" || len(got.Attempts) != 2 {
			t.Errorf("used invitation %+v", got)
		}
		if _, err := s.EnrolmentByHash(ctx, [32]byte{9}); fault.KindOf(err) != fault.Missing {
			t.Errorf("an unknown token: error %v, want Missing", err)
		}
		for range 30 {
			check(t, s.Attempted(ctx, "acme", hub.Attempt{At: now(), Address: "127.0.0.1", Stage: "used"}))
		}
		check(t, s.Attempted(ctx, "nobody's", hub.Attempt{At: now()}))
		if got := must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join)); len(got.Attempts) != 20 {
			t.Errorf("INV-9 %d attempts are kept, want the last 20", len(got.Attempts))
		}
	})
	t.Run("the agent that is replaced is revoked", func(t *testing.T) {
		before := must[int64](t)(s.RevocationVersion(ctx))
		second := sha256.Sum256([]byte("second"))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			w.enrolment = must[hub.Enrolment](t)(tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: w.cluster.ID, Prefix: "two", ExpiresAt: now().Add(time.Hour)}, second))
			return nil
		})
		check(t, redeem("agent-9", "09", "new key"))
		if after := must[int64](t)(s.RevocationVersion(ctx)); after != before+1 {
			t.Errorf("the version went from %d to %d", before, after)
		}
		revoked := must[[]hub.Revocation](t)(s.Revocations(ctx, time.Now()))
		if diff := cmp.Diff([]hub.Revocation{{AgentID: "agent-1", Tenant: revoked[0].Tenant, Until: revoked[0].Until}}, revoked); diff != "" {
			t.Errorf("revocations: %s", diff)
		}
		if m := must[hub.Member](t)(s.Member(ctx, w.tenant, w.cluster.ID)); m.AgentID != "agent-9" || m.ClusterName != "acme" || m.Suspended {
			t.Errorf("member %+v", m)
		}
		check(t, s.Renewed(ctx, hub.Certificate{Tenant: w.tenant, Cluster: w.cluster.ID, AgentID: "agent-9", Serial: "10", NotBefore: now(), NotAfter: now().Add(time.Hour)}))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.RevokeAgent(ctx, w.cluster.ID) })
		if revoked := must[[]hub.Revocation](t)(s.Revocations(ctx, time.Now())); len(revoked) != 2 {
			t.Errorf("revocations %+v, want two", revoked)
		}
		if _, err := s.EnrolmentByHash(ctx, second); fault.KindOf(err) != fault.Missing {
			t.Errorf("join tokens outlive the revocation: %v", err)
		}
	})
	t.Run("SEC-K1 SEC-K2 a displaced agent that replays its join token changes nothing", func(t *testing.T) {
		d := storetest.Open(t)
		v := build(t, d, "replayed", "replayed")
		system := d.System()
		invite := func(prefix string) (hub.EnrolmentID, [32]byte) {
			hash := sha256.Sum256([]byte(prefix))
			var e hub.Enrolment
			storetest.In(t, d, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
				e = must[hub.Enrolment](t)(tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: v.cluster.ID, Prefix: prefix, ExpiresAt: now().Add(time.Hour)}, hash))
				return nil
			})
			return e.ID, hash
		}
		redeem := func(id hub.EnrolmentID, agent, serial, key string) error {
			return system.Redeem(ctx, hub.Redemption{Enrolment: id, Key: []byte(key), Fingerprint: "uid", At: now(), Address: "127.0.0.1",
				Certificate: hub.Certificate{Tenant: v.tenant, Cluster: v.cluster.ID, AgentID: agent, Serial: serial, NotBefore: now(), NotAfter: now().Add(time.Hour)}})
		}
		first, _ := invite("first")
		check(t, redeem(first, "a1", "r1", "key of a1"))
		second, used := invite("second")
		_, unused := invite("third")
		check(t, redeem(second, "a2", "r2", "key of a2"))
		before := must[int64](t)(system.RevocationVersion(ctx))
		for _, agent := range []string{"a1", "a3"} {
			if err := redeem(first, agent, "r3", "key of a1"); fault.KindOf(err) != fault.Conflict {
				t.Errorf("the replay for agent %s: error %v, want Conflict", agent, err)
			}
		}
		if after := must[int64](t)(system.RevocationVersion(ctx)); after != before {
			t.Error("the replay revoked somebody")
		}
		if m := must[hub.Member](t)(system.Member(ctx, v.tenant, v.cluster.ID)); m.AgentID != "a2" {
			t.Errorf("the cluster's agent is %q, want a2", m.AgentID)
		}
		check(t, redeem(second, "a2", "r4", "key of a2")) // its answer was lost
		if _, err := system.EnrolmentByHash(ctx, used); err != nil {
			t.Errorf("the token that was used last: %v", err)
		}
		for name, hash := range map[string][32]byte{"of the displaced agent": sha256.Sum256([]byte("first")), "that nobody used": unused} {
			if _, err := system.EnrolmentByHash(ctx, hash); fault.KindOf(err) != fault.Missing {
				t.Errorf("the token %s still works: %v", name, err)
			}
		}
	})
	t.Run("presence follows the newest session", func(t *testing.T) {
		at := hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s1", Replica: "r1", KubeVersion: "v1.35.4", APIVersions: []string{"v1"}, At: now()}
		check(t, s.Connected(ctx, at))
		at.Session, at.Replica = "s2", "r2"
		check(t, s.Connected(ctx, at))
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s1"))
		if p := must[hub.AgentHome](t)(s.Attachment(ctx, w.tenant, w.cluster.ID)); p.Replica != "r2" || p.Session != "s2" {
			t.Errorf("attachment %+v, want that of the newest session", p)
		}
		seen := now().Add(time.Second)
		lost := must[[]string](t)(s.RenewAttachments(ctx, []hub.Heartbeat{
			{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s1", At: seen.Add(time.Hour)},
			{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s2", At: seen, Backlog: 3, Lag: 2 * time.Second},
		}))
		if !slices.Equal(lost, []string{"s1"}) {
			t.Errorf("FT-L4 sessions that were replaced elsewhere: %v, want s1", lost)
		}
		must[[]string](t)(s.RenewAttachments(ctx, nil))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID))
			if !c.Connected || c.LastSeen == nil || !c.LastSeen.Equal(seen) || c.KubeVersion != "v1.35.4" || c.Backlog != 3 || c.Lag != 2*time.Second {
				t.Errorf("cluster %+v", c)
			}
			return nil
		})
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s2"))
		if _, err := s.Attachment(ctx, w.tenant, w.cluster.ID); fault.KindOf(err) != fault.Offline {
			t.Errorf("without a session: error %v, want Offline", err)
		}
	})
	t.Run("SEC-K1 the refusal of an agent stays with its cluster until it connects, that of a clone for longer", func(t *testing.T) {
		of := func(v *world) (r *hub.Refusal) {
			storetest.In(t, db, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
				r = must[hub.Cluster](t)(tx.ClusterByID(ctx, v.cluster.ID)).Refusal
				return nil
			})
			return r
		}
		refusal := func() *hub.Refusal { return of(w) }
		connect := func() {
			check(t, s.Connected(ctx, hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s4", Replica: "r1", At: now()}))
		}
		want := hub.Refusal{At: now(), Address: "192.0.2.1:5", Stage: "version", Message: "too old\x00", AgentVersion: "0.0.1"}
		check(t, s.Refused(ctx, w.tenant, w.cluster.ID, want))
		want.Message = "too old\uFFFD"
		if diff := cmp.Diff(&want, refusal()); diff != "" {
			t.Errorf("refusal: %s", diff)
		}
		connect()
		if r := refusal(); r != nil {
			t.Errorf("after a connection: %+v", r)
		}
		want.Stage = "fingerprint"
		check(t, s.Refused(ctx, w.tenant, w.cluster.ID, want))
		connect()
		if r := refusal(); r == nil || r.Stage != "fingerprint" {
			t.Errorf("a clone after a connection of the original: %+v", r)
		}
		other := build(t, db, "refused", "refused")
		check(t, s.Attempted(ctx, "refused", hub.Attempt{At: now(), Address: "192.0.2.2:1", Stage: "expired", Message: "it expired"}))
		if r := refusal(); r.Stage != "fingerprint" {
			t.Errorf("ISO-1 an attempt at another tenant's cluster shows: %+v", r)
		}
		if err := s.Refused(ctx, w.tenant, other.cluster.ID, want); fault.KindOf(err) != fault.Missing {
			t.Errorf("ISO-1 a refusal in another tenant's name: %v", err)
		}
		if r := of(other); r == nil || r.Stage != "expired" || r.Message != "it expired" {
			t.Errorf("after a failed enrolment: %+v", r)
		}
	})
	t.Run("INV-6 an agent that never connected is not connected", func(t *testing.T) {
		old := hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s3", Replica: "r3", At: now().Add(-time.Hour)}
		other := storetest.Open(t)
		v := build(t, other, "acme", "acme")
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			fresh := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "silent"}}))
			old.Tenant, old.Cluster = v.tenant, fresh.ID
			return nil
		})
		check(t, other.System().Connected(ctx, old))
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.Cluster(ctx, "silent")); c.Connected || c.LastSeen == nil {
				t.Errorf("cluster %+v, want not connected since it was last seen", c)
			}
			return nil
		})
	})
	t.Run("the authority is stored once and returned completely", func(t *testing.T) {
		if _, err := s.Authority(ctx); fault.KindOf(err) != fault.Missing {
			t.Errorf("before it is put: error %v, want Missing", err)
		}
		check(t, s.PutAuthority(ctx, []byte("private")))
		if err := s.PutAuthority(ctx, []byte("another")); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a second one: error %v, want Conflict", err)
		}
		if got := must[[]byte](t)(s.Authority(ctx)); string(got) != "private" {
			t.Errorf("it came back as %q", got)
		}
	})
}
