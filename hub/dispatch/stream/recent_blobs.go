package stream

import (
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

// recentBlobs keeps the sealed bodies that were stored last, so that the rows
// that need them carry them along and the agent spares itself a round trip.
// It is a saving only: what has been dropped is fetched.
type recentBlobs struct {
	mu    sync.Mutex
	limit int
	size  int
	order []recentKey
	blobs map[recentKey]recentBlob
	last  uint64 // number of the newest one
}

type recentBlob struct {
	sealed []byte
	number uint64 // in order of being stored
}

// Digests are keyed per tenant by construction; the tenant is part of the key
// all the same.
type recentKey struct {
	tenant hub.TenantID
	digest hub.Digest
}

func newRecentBlobs(limit int) *recentBlobs {
	return &recentBlobs{limit: limit, blobs: map[recentKey]recentBlob{}}
}

// Remember keeps sealed bodies that are about to be stored: rows that need them
// carry them along.
func (s *Server) Remember(tenant hub.TenantID, objects []hub.SealedObject) {
	s.recent.put(tenant, objects)
}

// Recent returns a sealed body if it was stored lately.
func (s *Server) Recent(tenant hub.TenantID, digest hub.Digest) (sealed []byte, found bool) {
	sealed, _, found = s.recent.get(tenant, digest)
	return sealed, found
}

func (r *recentBlobs) put(tenant hub.TenantID, objects []hub.SealedObject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		key := recentKey{tenant, o.Digest}
		if _, held := r.blobs[key]; held || len(o.Sealed) > r.limit/8 {
			continue
		}
		r.last++
		r.blobs[key] = recentBlob{o.Sealed, r.last}
		r.order = append(r.order, key)
		r.size += len(o.Sealed)
	}
	for r.size > r.limit {
		oldest := r.order[0]
		r.order = r.order[1:]
		r.size -= len(r.blobs[oldest].sealed)
		delete(r.blobs, oldest)
	}
}

// get returns a body, and its number among all that were stored.
func (r *recentBlobs) get(tenant hub.TenantID, digest hub.Digest) (sealed []byte, number uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.blobs[recentKey{tenant, digest}]
	return b.sealed, b.number, ok
}

// newest is the number of the body that was stored last.
func (r *recentBlobs) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
