package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A storedSnapshot is what decides about what is deployed, as the database
// holds it.
type storedSnapshot struct {
	params, objects, inputs, mac []byte
	digests, lists               [][]byte
}

// snapshotMAC authenticates a snapshot: its tenant, application, revisions,
// parameters (with the version of the renderers), objects and recorded inputs.
// Each part has its length before it, so that none can pass for another.
func snapshotMAC(key [32]byte, s *hub.Snapshot, row *storedSnapshot) []byte {
	h := hmac.New(sha256.New, key[:])
	number := func(n int) { _, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	part := func(b []byte) {
		number(len(b))
		_, _ = h.Write(b)
	}
	for _, text := range [...]string{string(s.Tenant), string(s.ID), string(s.Application), s.Revision, string(s.SourceType)} {
		part([]byte(text))
	}
	number(len(s.Revisions))
	for _, r := range s.Revisions {
		part([]byte(r))
	}
	impure := 0
	if s.Impure {
		impure = 1
	}
	number(impure)
	part(row.params)
	part(row.objects)
	part(row.inputs)
	for _, list := range [...][][]byte{row.digests, row.lists} {
		number(len(list))
		for _, d := range list {
			part(d)
		}
	}
	return h.Sum(nil)
}

// authentic reports whether the hub itself has stored a snapshot like that. One
// that something else has changed is as good as none, and is no longer in
// memory: it is rendered again.
//
// The caller has read the tenant's keys: a query is under way.
func (t *Tenant) authentic(ctx context.Context, s *hub.Snapshot, row *storedSnapshot) (bool, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return false, err
	}
	if hmac.Equal(row.mac, snapshotMAC(keys.Snapshot, s, row)) {
		return true, nil
	}
	changed := func(k snapshotKey) bool { return k == snapshotKey{t.id, s.ID} }
	t.db.inputs.Drop(changed)
	t.db.objects.Drop(changed)
	t.db.log.Error("a stored snapshot was changed outside of the hub and is not used; its application is rendered again at the next refresh",
		logkey.Tenant, t.id, logkey.Application, s.Application, logkey.Snapshot, s.ID)
	return false, nil
}
