package agenttest_test

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// directory is what the hub's store is to its end of the link, in memory, for
// one cluster.
type directory struct {
	mu        sync.Mutex
	authority []byte
	invited   map[[32]byte]*hub.Invitation
	member    hub.Member
	hellos    int
	connected string
}

func (d *directory) Authority(context.Context) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.authority == nil {
		return nil, fault.New(fault.Missing, "no authority")
	}
	return d.authority, nil
}

func (d *directory) PutAuthority(_ context.Context, secret []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.authority = secret
	return nil
}

func (d *directory) EnrolmentByHash(_ context.Context, hash [32]byte) (hub.Invitation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.invited[hash]; i != nil {
		return *i, nil
	}
	return hub.Invitation{}, fault.New(fault.Missing, "no enrolment")
}

func (d *directory) Redeem(_ context.Context, r hub.Redemption) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range d.invited {
		if i.ID == r.Enrolment {
			i.UsedAt, i.Key, i.AgentID = &r.At, r.Key, r.Certificate.AgentID
		}
	}
	d.member.AgentID, d.member.Fingerprint = r.Certificate.AgentID, r.Fingerprint
	return nil
}

func (d *directory) Attempted(context.Context, string, hub.Attempt) error { return nil }
func (d *directory) Renewed(context.Context, hub.Certificate) error       { return nil }
func (d *directory) RevocationVersion(context.Context) (int64, error)     { return 0, nil }
func (d *directory) Revocations(context.Context, time.Time) ([]hub.Revocation, error) {
	return nil, nil
}

func (d *directory) Member(context.Context, hub.TenantID, hub.ClusterID) (hub.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.member, nil
}

func (d *directory) Connected(_ context.Context, a hub.Attachment) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hellos++
	d.connected = a.Session
	return nil
}

func (d *directory) Refused(context.Context, hub.TenantID, hub.ClusterID, hub.Refusal) error {
	return nil
}

func (d *directory) RenewAttachments(context.Context, []hub.Heartbeat) ([]string, error) {
	return nil, nil
}
func (d *directory) Quarantine(context.Context, hub.TenantID, hub.ClusterID, hub.Quarantine) (bool, error) {
	return true, nil
}

func (d *directory) MergeRevocations(context.Context, hub.TenantID, []hub.Revocation) error {
	return nil
}

func (d *directory) Disconnected(context.Context, hub.TenantID, hub.ClusterID, string) error {
	return nil
}

func objectKey() [32]byte { return sha256.Sum256([]byte("object key")) }
func digestKey() [32]byte { return sha256.Sum256([]byte("digest key")) }

func (d *directory) LinkKeys(context.Context, hub.TenantID, hub.ClusterID) (object, mask [32]byte, err error) {
	return objectKey(), sha256.Sum256([]byte("mask key")), nil
}
