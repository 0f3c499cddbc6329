package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	headsEvery = 2 * time.Second // between looks at the ends of all logs that are followed here
	headsPage  = 1000            // of them in one transaction
)

// heads knows which logs are followed at this replica. The ends of all of them
// are read together, so that an idle fleet costs a query for each tenant and
// not one for each agent; a stream whose log has moved without a hint is
// woken.
type heads struct {
	mu      sync.Mutex
	streams map[*watched]struct{}
}

// watched is one stream and the end of the log that it knows of.
type watched struct {
	tenant  hub.TenantID
	cluster hub.ClusterID
	known   atomic.Pointer[headVersion] // nil: it reads at this moment
}

type headVersion struct {
	incarnation string
	seq         int64
	chain       string
	held        bool
}

func headVersionOf(h hub.LogHead) headVersion {
	return headVersion{h.Incarnation, h.Seq, string(h.Chain), h.Held}
}

// endOf is where a log ends, whatever else is known of it.
func endOf(h hub.LogHead) headVersion {
	return headVersion{h.Incarnation, h.Seq, string(h.Chain), false}
}

func newHeads() *heads { return &heads{streams: map[*watched]struct{}{}} }

// add returns the entry of a stream, and the way to take it out again.
func (h *heads) add(tenant hub.TenantID, cluster hub.ClusterID) (*watched, func()) {
	w := &watched{tenant: tenant, cluster: cluster}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[w] = struct{}{}
	return w, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.streams, w)
	}
}

// byTenant returns the streams that have read to an end.
func (h *heads) byTenant() map[hub.TenantID][]*watched {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[hub.TenantID][]*watched{}
	for w := range h.streams {
		if w.known.Load() != nil {
			out[w.tenant] = append(out[w.tenant], w)
		}
	}
	return out
}

// watch looks at the ends of the logs until ctx ends.
func (s *Server) watch(ctx context.Context) {
	ctx, done := lifecycle.Watch(ctx, "ends of logs", loopLimit)
	defer done()
	for {
		lifecycle.Beat(ctx)
		t := time.NewTimer(headsEvery*3/4 + rand.N(headsEvery/2))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		for tenant, all := range s.heads.byTenant() {
			for len(all) > 0 {
				page := all[:min(len(all), headsPage)]
				all = all[len(page):]
				if err := s.compare(ctx, tenant, page); err != nil && ctx.Err() == nil {
					s.log.WarnContext(ctx, "the ends of the desired logs cannot be read", logkey.Tenant, tenant, logkey.Error, err)
					break
				}
			}
		}
	}
}

// compare wakes the streams whose log ends elsewhere than they know.
func (s *Server) compare(ctx context.Context, tenant hub.TenantID, streams []*watched) error {
	clusters := make([]hub.ClusterID, len(streams))
	for i, w := range streams {
		clusters[i] = w.cluster
	}
	var found map[hub.ClusterID]hub.LogHead
	err := s.store.ReadTenant(ctx, tenant, func(ctx context.Context, tx Tx) (err error) {
		found, err = tx.Heads(ctx, clusters)
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range streams {
		known := w.known.Load()
		if head, there := found[w.cluster]; known != nil && (!there || headVersionOf(head) != *known) {
			s.wakes.wake(w.cluster, nil)
		}
	}
	return nil
}
