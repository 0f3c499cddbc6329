package dispatch

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A bookmark is where a stream goes on reading.
type bookmark struct {
	hub.LogPlace
	barrier int64 // the end of the log that the last barrier was for; -1: none was sent
}

// A page is what a stream sends next.
type page struct {
	hub.LogPage
	more   bool                // rows may follow
	leaves map[string][32]byte // for a barrier; nil: more rows follow, or the last one still stands
}

// fewestRows is what each of many streams that read together gets at least.
const fewestRows = 20

// rowsFor is how many rows each of so many streams gets at once: together not
// many more than a few that read alone, however many replay everything.
func rowsFor(streams int) int { return min(pageRows, max(fewestRows, 4*pageRows/streams)) }

// read gives pages of several logs. Rows, ends and leaves are of one moment.
func (d *Dispatcher) read(ctx context.Context, tenant string, places []bookmark) ([]page, error) {
	out, limit := make([]page, len(places)), rowsFor(len(places))
	err := d.store.ReadTenant(ctx, hub.TenantID(tenant), func(ctx context.Context, tx Tx) error {
		want := make([]hub.LogPlace, len(places))
		for i, p := range places {
			want[i] = p.LogPlace
		}
		found, err := tx.Pages(ctx, want, limit)
		if err != nil {
			return err
		}
		var last []hub.ClusterID
		for i, p := range places {
			got := found[i]
			if got.Head.Incarnation == "" {
				return fault.New(fault.Missing, "there is no such cluster")
			}
			out[i] = page{LogPage: got, more: len(got.Rows) == limit}
			if !out[i].more && (len(got.Rows) > 0 || p.barrier != got.Head.Seq) {
				last = append(last, p.Cluster)
			}
		}
		if len(last) == 0 {
			return nil
		}
		leaves, err := tx.LeavesOf(ctx, last)
		for i, p := range places {
			if slices.Contains(last, p.Cluster) && !out[i].more {
				out[i].leaves = leaves[p.Cluster]
			}
		}
		return err
	})
	return out, err
}
