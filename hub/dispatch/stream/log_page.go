package stream

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A cursor is where a stream goes on reading.
type cursor struct {
	hub.LogPlace
	barrier     int64            // the end of the log that the last barrier was for; -1: none was sent
	leavesLater bool             // leaves are wanted later
	pushed      *wire.PushedRows // what follows, unless the log says otherwise; nil: it has to be read
}

// A logPage is what a stream sends next.
type logPage struct {
	hub.LogPage
	more   bool                // rows may follow
	due    bool                // the last barrier does not stand any more, and no rows follow
	leaves map[string][32]byte // for a barrier that is due and wanted
}

// fewestRows is what each of many streams that read together gets at least.
const fewestRows = wire.MaxPushedRows

// rowsFor is how many rows each of so many streams gets at once: together not
// many more than a few that read alone, however many replay everything.
func rowsFor(streams int) int { return min(pageRows, max(fewestRows, 4*pageRows/streams)) }

// read returns pages of several logs. Rows, ends and leaves are of one moment.
func (s *Server) read(ctx context.Context, tenant string, places []cursor) ([]logPage, error) {
	out, limit := make([]logPage, len(places)), rowsFor(len(places))
	err := s.store.ReadTenant(ctx, hub.TenantID(tenant), func(ctx context.Context, tx Tx) error {
		known, err := added(ctx, tx.LogEnds, places)
		if err != nil {
			return err
		}
		var want []hub.LogPlace
		var read []int
		for i, p := range places {
			if head, there := known[i]; there {
				out[i] = logPage{LogPage: hub.LogPage{Rows: p.pushed.Rows, Head: head}}
				continue
			}
			want, read = append(want, p.LogPlace), append(read, i)
		}
		if len(want) > 0 {
			found, err := tx.Pages(ctx, want, limit)
			if err != nil {
				return err
			}
			for n, i := range read {
				out[i] = logPage{LogPage: found[n], more: len(found[n].Rows) == limit}
			}
		}
		return barriers(ctx, tx.LogEnds, places, out)
	})
	return out, err
}

// added returns the ends of those logs that hold, after the place where a stream
// is, what it was told and nothing else: the hash of the last row is that of
// all before it, so no row has to be read.
func added(ctx context.Context, ends LogEnds, places []cursor) (map[int]hub.LogHead, error) {
	var clusters []hub.ClusterID
	for _, p := range places {
		if p.pushed != nil && endOf(p.pushed.From) == endOf(p.Known) {
			clusters = append(clusters, p.Cluster)
		}
	}
	if len(clusters) == 0 {
		return nil, nil
	}
	heads, err := ends.Heads(ctx, clusters)
	out := make(map[int]hub.LogHead, len(clusters))
	for i, p := range places {
		if p.pushed == nil || endOf(p.pushed.From) != endOf(p.Known) {
			continue
		}
		if head, there := heads[p.Cluster]; there && endOf(head) == endOf(p.pushed.To) {
			out[i] = head
		}
	}
	return out, err
}

// barriers adds the leaves for those that are due and wanted.
func barriers(ctx context.Context, ends LogEnds, places []cursor, out []logPage) error {
	var last []hub.ClusterID
	for i, p := range places {
		got := &out[i]
		if got.Head.Incarnation == "" {
			return fault.New(fault.Missing, "there is no such cluster")
		}
		got.due = !got.more && (len(got.Rows) > 0 || p.barrier != got.Head.Seq)
		if got.due && !p.leavesLater {
			last = append(last, p.Cluster)
		}
	}
	if len(last) == 0 {
		return nil
	}
	leaves, err := ends.LeavesOf(ctx, last)
	for i, p := range places {
		if out[i].due && !p.leavesLater {
			out[i].leaves = leaves[p.Cluster]
		}
	}
	return err
}
