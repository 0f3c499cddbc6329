package link_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/shared/fault"
)

// directory is what hub/store is to fleet, in memory.
type directory struct {
	mu      sync.Mutex
	changed *sync.Cond

	outage      error // every question fails with it
	authority   []byte
	invitations map[[32]byte]*hub.Invitation
	attempts    map[string][]string // stages by prefix
	version     int64
	asked       int64 // version that a hub was told last
	revoked     []hub.Revocation
	members     map[hub.ClusterID]hub.Member
	connected   map[hub.ClusterID]hub.Attachment
	hellos      int // Connected calls
	left        int // Disconnected calls
	seen        map[string]int
	attempted   []hub.Attempt // failed ones, in order
	refusals    map[hub.ClusterID][]hub.Refusal
	quarantines map[hub.ClusterID]hub.Quarantine
	serials     []string // of certificates, in order of issue
}

func newDirectory() *directory {
	d := &directory{
		invitations: map[[32]byte]*hub.Invitation{}, attempts: map[string][]string{}, members: map[hub.ClusterID]hub.Member{},
		connected: map[hub.ClusterID]hub.Attachment{}, refusals: map[hub.ClusterID][]hub.Refusal{}, seen: map[string]int{},
		quarantines: map[hub.ClusterID]hub.Quarantine{},
	}
	d.changed = sync.NewCond(&d.mu)
	return d
}

// do runs fn under the lock and wakes those who wait.
func (d *directory) do(fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.changed.Broadcast()
	if d.outage != nil {
		return d.outage
	}
	return fn()
}

// await waits until cond holds.
func (d *directory) await(cond func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !cond() {
		d.changed.Wait()
	}
}

func (d *directory) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outage = err
}

func (d *directory) Authority(context.Context) (out []byte, err error) {
	err = d.do(func() error {
		if d.authority == nil {
			return fault.New(fault.Missing, "no authority")
		}
		out = d.authority
		return nil
	})
	return out, err
}

func (d *directory) PutAuthority(_ context.Context, secret []byte) error {
	return d.do(func() error {
		if d.authority != nil {
			return fault.New(fault.Conflict, "there is one")
		}
		d.authority = secret
		return nil
	})
}

func (d *directory) EnrolmentByHash(_ context.Context, hash [32]byte) (out hub.Invitation, err error) {
	err = d.do(func() error {
		i := d.invitations[hash]
		if i == nil {
			return fault.New(fault.Missing, "no enrolment")
		}
		out = *i
		return nil
	})
	return out, err
}

func (d *directory) Redeem(_ context.Context, r hub.Redemption) error {
	return d.do(func() error {
		for _, i := range d.invitations {
			if i.ID != r.Enrolment {
				continue
			}
			m := d.members[i.Cluster]
			if i.UsedAt != nil && (!bytes.Equal(i.Key, r.Key) || m.AgentID != r.Certificate.AgentID) {
				return fault.New(fault.Conflict, "used")
			}
			for hash, other := range d.invitations {
				if other.Cluster == i.Cluster && other.ID != i.ID {
					delete(d.invitations, hash)
				}
			}
			i.UsedAt, i.Key, i.AgentID = &r.At, r.Key, r.Certificate.AgentID
			if m.AgentID != "" && m.AgentID != i.AgentID {
				d.revoked = append(d.revoked, hub.Revocation{AgentID: m.AgentID})
				d.version++
			}
			m.AgentID, m.Fingerprint = i.AgentID, r.Fingerprint
			d.members[i.Cluster] = m
			d.serials = append(d.serials, r.Certificate.Serial)
			d.attempts[i.Prefix] = append(d.attempts[i.Prefix], "issued")
			return nil
		}
		return fault.New(fault.Missing, "no enrolment")
	})
}

func (d *directory) Attempted(_ context.Context, prefix string, a hub.Attempt) error {
	return d.do(func() error {
		d.attempts[prefix] = append(d.attempts[prefix], a.Stage)
		d.attempted = append(d.attempted, a)
		return nil
	})
}

func (d *directory) Renewed(_ context.Context, c hub.Certificate) error {
	return d.do(func() error { d.serials = append(d.serials, c.Serial); return nil })
}

func (d *directory) RevocationVersion(context.Context) (v int64, err error) {
	err = d.do(func() error { v, d.asked = d.version, d.version; return nil })
	return v, err
}

// polled reports whether a hub has asked since something was revoked.
func (d *directory) polled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked == d.version
}

func (d *directory) Revocations(context.Context, time.Time) (out []hub.Revocation, err error) {
	err = d.do(func() error { out = append(out, d.revoked...); return nil })
	return out, err
}

func (d *directory) revoke(r hub.Revocation) {
	_ = d.do(func() error { d.revoked = append(d.revoked, r); d.version++; return nil })
}

func (d *directory) Member(_ context.Context, _ hub.TenantID, c hub.ClusterID) (m hub.Member, err error) {
	err = d.do(func() error {
		var ok bool
		if m, ok = d.members[c]; !ok {
			return fault.New(fault.Missing, "no cluster")
		}
		m.Quarantined = m.Quarantined || d.quarantines[c].Known != "" // at once; the revocations say it a poll later
		return nil
	})
	return m, err
}

func (d *directory) Connected(_ context.Context, a hub.Attachment) error {
	return d.do(func() error { d.connected[a.Cluster] = a; d.hellos++; return nil })
}

// RenewAttachments knows the newest session of each cluster, as the store's row does.
func (d *directory) RenewAttachments(_ context.Context, all []hub.Heartbeat) (lost []string, err error) {
	err = d.do(func() error {
		for _, s := range all {
			d.seen[s.Session]++
			if now, ok := d.connected[s.Cluster]; ok && now.Session != s.Session {
				lost = append(lost, s.Session)
			}
		}
		return nil
	})
	return lost, err
}

// Quarantine is for every replica, through the revocations.
func (d *directory) Quarantine(_ context.Context, t hub.TenantID, c hub.ClusterID, q hub.Quarantine) (fresh bool, err error) {
	err = d.do(func() error {
		if fresh = d.quarantines[c].Known == ""; fresh {
			d.quarantines[c] = q
			d.version++
			d.revoked = append(d.revoked, hub.Revocation{Tenant: t, Cluster: c})
		}
		return nil
	})
	return fresh, err
}

// endQuarantine ends a quarantine.
func (d *directory) endQuarantine(c hub.ClusterID, fingerprint, rejected string) {
	_ = d.do(func() error {
		m := d.members[c]
		m.Fingerprint, m.Rejected = fingerprint, append(m.Rejected, rejected)
		d.members[c] = m
		delete(d.quarantines, c)
		d.version++
		d.revoked = slices.DeleteFunc(d.revoked, func(r hub.Revocation) bool { return r.Cluster == c })
		return nil
	})
}

func (d *directory) MergeRevocations(_ context.Context, _ hub.TenantID, of []hub.Revocation) error {
	return d.do(func() error {
		d.revoked = append(d.revoked, of...)
		d.version++
		return nil
	})
}

func (d *directory) Refused(_ context.Context, _ hub.TenantID, c hub.ClusterID, r hub.Refusal) error {
	return d.do(func() error { d.refusals[c] = append(d.refusals[c], r); return nil })
}

func (d *directory) Disconnected(_ context.Context, _ hub.TenantID, c hub.ClusterID, session string) error {
	return d.do(func() error {
		d.left++
		if d.connected[c].Session == session {
			delete(d.connected, c)
		}
		return nil
	})
}

func (d *directory) LinkKeys(_ context.Context, t hub.TenantID, c hub.ClusterID) (object, mask [32]byte, err error) {
	return sha256.Sum256([]byte(t)), sha256.Sum256([]byte(c)), d.do(func() error { return nil })
}

// cluster makes a cluster of a tenant.
func (d *directory) cluster(t *testing.T, tenant hub.TenantID) hub.ClusterID {
	t.Helper()
	id := hub.NewID[hub.ClusterID]()
	_ = d.do(func() error { d.members[id] = hub.Member{ClusterName: "cluster of " + string(tenant)}; return nil })
	return id
}

// invite makes a join token for a cluster, good for life from now.
func (d *directory) invite(t testing.TB, i fleet.Inviter, tenant hub.TenantID, c hub.ClusterID, until time.Time) (token, prefix string) {
	t.Helper()
	token, prefix, hash, err := i.Invite()
	if err != nil {
		t.Fatal(err)
	}
	_ = d.do(func() error {
		d.invitations[hash] = &hub.Invitation{
			Enrolment:   hub.Enrolment{ID: hub.NewID[hub.EnrolmentID](), Tenant: tenant, Cluster: c, Prefix: prefix, ExpiresAt: until},
			ClusterName: d.members[c].ClusterName,
		}
		return nil
	})
	return token, prefix
}

func (d *directory) stages(prefix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.attempts[prefix]...)
}
