package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

// PutObservation is PutObservations of one report.
func (t *Tenant) PutObservation(ctx context.Context, cluster hub.ClusterID, o hub.Observation) (hub.Observed, error) {
	out, err := t.PutObservations(ctx, []hub.ClusterObservation{{Cluster: cluster, Observation: o}})
	if err != nil {
		return hub.Observed{}, err
	}
	return out[0], nil
}

// PutObservations stores reports of agents: the newest values of what they
// see, written only where they changed. Reports of an epoch are numbered; one
// that was stored before changes nothing, and after a gap the agent must send
// everything again. Work "outcome" is enqueued for operations that became over.
// There is one answer for each report, in their order.
func (t *Tenant) PutObservations(ctx context.Context, reports []hub.ClusterObservation) ([]hub.Observed, error) {
	out := make([]hub.Observed, 0, len(reports))
	for len(reports) > 0 {
		n := apart(reports)
		done, err := t.putApart(ctx, reports[:n])
		if err != nil {
			return nil, err
		}
		out, reports = append(out, done...), reports[n:]
	}
	return out, nil
}

// apart is how many of the reports, from the first on, are about different
// clusters and applications: these can be stored together.
func apart(reports []hub.ClusterObservation) int {
	of := map[string]int{}
	mine := func(i int, id string) bool {
		at, seen := of[id]
		if !seen {
			of[id] = i
		}
		return !seen || at == i
	}
	for i, r := range reports {
		ok := mine(i, string(r.Cluster))
		for _, a := range r.Applications {
			ok = mine(i, string(a.Application)) && ok
		}
		if !ok {
			return i
		}
	}
	return len(reports)
}

// putApart stores reports that have no cluster and no application in common,
// in a few round trips for all of them.
func (t *Tenant) putApart(ctx context.Context, reports []hub.ClusterObservation) ([]hub.Observed, error) {
	at, err := t.lockObserved(ctx, reports)
	if err != nil {
		return nil, err
	}
	out := make([]hub.Observed, len(reports))
	var fresh []int
	for i, r := range reports {
		if at[i].epoch == r.Epoch && r.Seq <= at[i].seq {
			out[i].Repeated = true
			continue
		}
		out[i].Resnapshot = at[i].advance(r.Observation)
		at[i].passing = r.Passing()
		fresh = append(fresh, i)
	}
	if len(fresh) > 0 {
		if err := t.store(ctx, reports, fresh, at, out); err != nil {
			return nil, err
		}
	}
	for i, r := range reports { // also if it is repeated: the answer may have been lost
		if out[i].Comparison, err = t.compare(ctx, r.Cluster, r.Sums); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lockObserved returns how far the reports of each cluster have come.
func (t *Tenant) lockObserved(ctx context.Context, reports []hub.ClusterObservation) ([]progress, error) {
	clusters := make([]hub.ClusterID, len(reports))
	for i, r := range reports {
		clusters[i] = r.Cluster
	}
	found := make(map[hub.ClusterID]progress, len(reports))
	b := &pgx.Batch{}
	b.Queue(planOnce)
	b.Queue(lockObserved, t.id, ids(clusters)).Query(func(rows pgx.Rows) error {
		var id hub.ClusterID
		var at progress
		_, err := pgx.ForEachRow(rows, []any{&id, &at.epoch, &at.seq, &at.snapshot, &at.version}, func() error {
			found[id] = at
			return nil
		})
		return err
	})
	if err := send(ctx, t.tx, "read the progress of reports", b); err != nil {
		return nil, err
	}
	out := make([]progress, len(reports))
	for i, cluster := range clusters {
		at, there := found[cluster]
		if !there {
			return nil, noCluster()
		}
		out[i] = at
	}
	return out, nil
}

// store writes those reports that are fresh.
func (t *Tenant) store(ctx context.Context, reports []hub.ClusterObservation, fresh []int, at []progress, out []hub.Observed) error {
	known, err := t.here(ctx, reports, fresh)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if !slices.ContainsFunc(fresh, func(i int) bool { return !at[i].passing }) {
		// Live state can be reported again; what ended cannot.
		b.Queue(lazyCommit)
	}
	var sent []hub.ApplicationObservation
	now := make([]report, len(fresh))
	for n, i := range fresh {
		now[n] = report{reports[i].Cluster, known[n], at[i], &out[i]}
		sent = append(sent, known[n].Applications...)
	}
	if err := t.queueObservations(b, now); err != nil {
		return err
	}
	t.queueProgress(b, reports, fresh, at)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store observations of %d clusters: %w", len(fresh), err)
	}
	return t.agentConditions(ctx, sent)
}

func (t *Tenant) queueProgress(b *pgx.Batch, reports []hub.ClusterObservation, fresh []int, at []progress) {
	var clusters, epochs []string
	var seqs, snapshots, marks []int64
	for _, i := range fresh {
		clusters, epochs, seqs = append(clusters, string(reports[i].Cluster)), append(epochs, at[i].epoch), append(seqs, at[i].seq)
		snapshots, marks = append(snapshots, at[i].snapshot), append(marks, at[i].version)
	}
	b.Queue(moveObserved, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": clusters, "epochs": epochs, "seqs": seqs, "snapshots": snapshots, "marks": marks,
	})
}

// progress is how far the reports of a cluster go. snapshot is negative when a
// part of that snapshot is missing: then it does not show what is gone.
type progress struct {
	epoch         string
	seq, snapshot int64
	version       int64
	sweep         bool
	passing       bool // as the agent sent it, whatever was left out of it
}

// advance moves on by one report, and reports whether earlier ones are missing.
func (p *progress) advance(o hub.Observation) (gap bool) {
	fresh := p.epoch != o.Epoch
	gap = o.Seq != p.seq+1
	if fresh {
		gap = o.Seq != 1 || o.Snapshot == 0
	}
	switch {
	case o.Snapshot != 0 && (fresh || (p.snapshot != o.Snapshot && p.snapshot != -o.Snapshot)):
		p.snapshot = o.Snapshot
		p.version++
	case fresh:
		p.snapshot = 0
	}
	if gap && p.snapshot > 0 {
		p.snapshot = -p.snapshot
	}
	p.epoch, p.seq = o.Epoch, o.Seq
	p.sweep = o.Sweep != 0 && o.Sweep == p.snapshot
	return gap
}

// here returns the fresh reports without what their agents may not report:
// applications that are gone or elsewhere.
func (t *Tenant) here(ctx context.Context, reports []hub.ClusterObservation, fresh []int) ([]hub.Observation, error) {
	var clusters, apps []string
	for _, i := range fresh {
		o := reports[i].Observation
		named := slices.Concat(
			appsOf(o.Applications, func(a hub.ApplicationObservation) hub.ApplicationID { return a.Application }),
			appsOf(o.Resources, func(r hub.Resource) hub.ApplicationID { return r.Application }),
			appsOf(o.Gone, func(g hub.ResourceGone) hub.ApplicationID { return g.Application }),
			appsOf(o.Closed, func(s hub.Tombstone) hub.ApplicationID { return s.Application }),
		)
		for _, id := range ids(appsOf(named, func(id hub.ApplicationID) hub.ApplicationID { return id })) {
			clusters, apps = append(clusters, string(reports[i].Cluster)), append(apps, id)
		}
	}
	mine := make(map[hub.ClusterID]map[hub.ApplicationID]bool, len(fresh))
	if len(apps) > 0 {
		_, err := list(ctx, t.tx, "applications of agents", func(row pgx.CollectableRow) (none struct{}, err error) {
			var cluster hub.ClusterID
			var app hub.ApplicationID
			err = row.Scan(&cluster, &app)
			if mine[cluster] == nil {
				mine[cluster] = map[hub.ApplicationID]bool{}
			}
			mine[cluster][app] = true
			return none, err
		}, selectHere, t.id, clusters, apps)
		if err != nil {
			return nil, err
		}
	}
	out := make([]hub.Observation, len(fresh))
	for n, i := range fresh {
		out[n] = sayOf(reports[i].Observation, mine[reports[i].Cluster])
	}
	return out, nil
}

// sayOf leaves of a report what concerns known applications. Of several values
// for one thing the last one stays.
func sayOf(o hub.Observation, mine map[hub.ApplicationID]bool) hub.Observation {
	o.Applications = last(o.Applications, func(a hub.ApplicationObservation) (string, bool) {
		return string(a.Application), mine[a.Application]
	})
	o.Resources = last(o.Resources, func(r hub.Resource) (string, bool) {
		return string(r.Application) + "\x00" + r.Group + "\x00" + r.Kind + "\x00" + r.Namespace + "\x00" + r.Name, mine[r.Application]
	})
	o.Gone = last(o.Gone, func(g hub.ResourceGone) (string, bool) {
		return string(g.Application) + "\x00" + g.UID + "\x00" + g.Group + "\x00" + g.Kind + "\x00" + g.Namespace + "\x00" + g.Name, mine[g.Application]
	})
	o.Closed = last(o.Closed, func(s hub.Tombstone) (string, bool) {
		return string(s.Application) + "\x00" + s.Group + "\x00" + s.Kind + "\x00" + s.Namespace + "\x00" + s.Name, mine[s.Application]
	})
	o.Operations = last(o.Operations, func(op hub.OperationObservation) (string, bool) {
		return string(op.Operation), hub.ValidID(string(op.Operation))
	})
	return o
}

// last returns the last value for each key, in order, of those that count.
func last[T any](in []T, key func(T) (string, bool)) []T {
	at := make(map[string]int, len(in))
	out := make([]T, 0, len(in))
	for _, v := range in {
		k, ok := key(v)
		if !ok {
			continue
		}
		if i, seen := at[k]; seen {
			out[i] = v
			continue
		}
		at[k] = len(out)
		out = append(out, v)
	}
	return out
}
