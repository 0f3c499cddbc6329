package render

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/failpoint"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Counters are exact counts since the stage was made. They are what the
// benchmarks and tests of "renders nothing" read.
type Counters struct {
	Rendered int64 // renders that ended with a snapshot
	Reused   int64 // refreshes answered from recorded inputs
	Failed   int64 // refreshes that ended with a condition
	Paused   int64 // of these, those with a cached error instead of a render
}

var counting sync.Mutex //nolint:gochecknoglobals // guards counters of all stages of a process

func (s *Stage) count(f func(*Counters)) {
	counting.Lock()
	defer counting.Unlock()
	f(&s.counters)
}

// Counts returns a copy of the counters.
func (s *Stage) Counts() Counters {
	counting.Lock()
	defer counting.Unlock()
	return s.counters
}

// sharing is what the batches of a tenant share while they are in work.
func (s *Stage) sharing(tenant hub.TenantID) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shares[tenant]
}

// busyTenants returns those that have as many batches in work as they may.
func (s *Stage) busyTenants() []hub.TenantID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []hub.TenantID
	for tenant, n := range s.busy {
		if n >= batches {
			out = append(out, tenant)
		}
	}
	return out
}

func (s *Stage) begin(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[tenant]++; s.busy[tenant] == 1 {
		s.shares[tenant] = newShared()
	}
}

func (s *Stage) end(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[tenant]--; s.busy[tenant] == 0 {
		delete(s.busy, tenant)
		delete(s.shares, tenant)
	}
	select {
	case s.freed <- struct{}{}:
	default: // it is known already
	}
}

// pauseForBatch waits a moment, or until the first batch has ended.
func (s *Stage) pauseForBatch(ctx context.Context) {
	t := time.NewTimer(batchDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-s.freed:
	case <-t.C:
	}
}

// resolveApplications finds out which of the applications have to be rendered. Those that
// fail already come last: they may well be slow to fail again.
func (r *round) resolveApplications(ctx context.Context, items []hub.WorkItem) ([]*job, error) {
	loop.Rest(ctx) // others refresh, with watchdogs of their own
	select {
	case r.tenantSlots <- struct{}{}:
		defer func() { <-r.tenantSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	loop.Beat(ctx)
	ids := make([]hub.ApplicationID, len(items))
	forced := map[hub.ApplicationID]bool{}
	traces := map[hub.ApplicationID]string{}
	for i, item := range items {
		ids[i] = hub.ApplicationID(item.Key)
		forced[ids[i]], r.leases[ids[i]] = item.Forced, item.Token
		traces[ids[i]] = item.Trace
	}
	found, err := r.work.Load(ctx, r.tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("load %d applications: %w", len(ids), err)
	}
	var jobs, last []*job
	for _, f := range found {
		f.Forced = f.Forced || forced[f.Application.ID]
		j := r.resolveApplicationSafely(ctx, f, traces[f.Application.ID])
		switch {
		case j == nil:
			continue
		case hasProblem(f.Application):
			last = append(last, j)
		default:
			jobs = append(jobs, j)
		}
		j.refresh.Recent = nil // large, and of no more use
	}
	return append(jobs, last...), ctx.Err()
}

// resolveApplicationSafely resolves one application in its own trace. A defect
// is the failure of that application, which is refreshed again later.
func (r *round) resolveApplicationSafely(ctx context.Context, f hub.Refresh, parent string) (j *job) {
	loop.Beat(ctx)
	err := loop.Safely(trace.Resume(ctx, parent), "render", func(ctx context.Context) error {
		j = r.resolveApplication(ctx, f)
		return nil
	})
	if err != nil {
		r.trees = nil // whatever was half done with them
		failed := &job{refresh: f}
		if op := f.Application.Awaited(); op != nil {
			failed.asked = op.ID
		}
		r.passing[f.Application.ID] = failed.asked == ""
		r.fail(failed, hub.ComparisonError, err)
		return nil
	}
	if j != nil {
		j.trace = parent
	}
	return j
}

type outcome struct {
	rendered *hub.Rendered
	failed   *hub.RefreshFailure
	passing  bool      // the failure is transient
	until    time.Time // of a pause, or of the next look at bases; zero: there is none
	err      error     // the job must be tried again
}

// renderAll renders in parallel and stores results as they come: the first
// ones at once, the others together with what finished meanwhile.
func (r *round) renderAll(ctx context.Context, jobs []*job) error {
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan *job)
	// Capacity one for each renderer: a finished render never waits for the
	// transaction of the previous ones.
	results := make(chan outcome, r.cfg.Flush)
	var wg sync.WaitGroup
	for range min(r.cfg.Parallel, len(jobs)) {
		wg.Go(func() {
			var trees treeSet
			for j := range queue {
				results <- r.safely(ctx, j, &trees)
			}
		})
	}
	go func() {
		defer close(results)
		for _, j := range jobs {
			select {
			case queue <- j:
			case <-ctx.Done():
			}
		}
		close(queue)
		wg.Wait()
	}()
	var failed error
	for o := range results {
		batch := drain(o, results, r.cfg.Flush)
		loop.Beat(ctx)
		err := loop.Safely(ctx, "render", func(ctx context.Context) error { return r.flush(ctx, batch) })
		if err != nil && failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}

// drain returns what is ready, up to limit, beginning with o.
func drain(o outcome, results <-chan outcome, limit int) []outcome {
	batch := []outcome{o}
	for len(batch) < limit {
		select {
		case more, ok := <-results:
			if !ok {
				return batch
			}
			batch = append(batch, more)
		default:
			return batch
		}
	}
	return batch
}

func (r *round) flush(ctx context.Context, batch []outcome) error {
	var done []hub.Rendered
	var failures []hub.RefreshFailure
	var first error
	for _, o := range batch {
		switch {
		case o.err != nil:
			if first == nil {
				first = o.err
			}
		case o.failed != nil:
			failures = append(failures, *o.failed)
			if o.passing {
				r.passing[o.failed.Application] = true
			} else if !o.until.IsZero() {
				r.until[o.failed.Application] = o.until
			}
		default:
			done = append(done, *o.rendered)
			if !o.until.IsZero() {
				r.until[o.rendered.Application] = o.until
			}
		}
	}
	failpoint.Here(failpoint.HubRenderDone)
	if len(done) > 0 {
		if err := r.sink.Rendered(ctx, r.tenant, done); err != nil {
			return fmt.Errorf("store %d snapshots: %w", len(done), err)
		}
	}
	if len(failures) > 0 {
		if err := r.sink.Failed(ctx, r.tenant, failures); err != nil {
			return fmt.Errorf("store %d failures: %w", len(failures), err)
		}
	}
	return first
}

// safely renders one job in its own trace, with a watchdog of its own: progress
// of other jobs must not hide it. A defect is the failure of that application,
// which is refreshed again later.
func (r *round) safely(ctx context.Context, j *job, trees *treeSet) (out outcome) {
	ctx, done := loop.Watch(ctx, "render", loopLimit)
	defer done()
	loop.Beat(ctx)
	ctx, end := trace.Start(trace.Resume(ctx, j.trace), "render", logkey.Tenant, string(r.tenant), logkey.Application, string(j.refresh.Application.ID))
	err := loop.Safely(ctx, "render", func(ctx context.Context) error {
		out = r.render(ctx, j, trees)
		return out.err
	})
	var defect *loop.PanicError
	if errors.As(err, &defect) {
		*trees = nil // whatever was half done with them
		out = r.failure(j, defect)
	}
	if out.rendered != nil {
		out.rendered.Trace = trace.Parent(ctx)
	}
	end(err)
	loop.Beat(ctx)
	return out
}

// render turns one job into a result that can be stored.
func (r *round) render(ctx context.Context, j *job, trees *treeSet) outcome {
	app := j.refresh.Application
	out := hub.Rendered{
		Application: app.ID, Generation: app.Generation, Revision: first(j.commits), Revisions: j.commits, Operation: j.asked,
		Lease: r.leases[app.ID],
	}
	if j.asked == "" {
		out.Spec = &hub.DecodedSpec{Version: app.Version, Spec: j.spec}
	}
	if err := r.verify(ctx, j); err != nil {
		if ctx.Err() != nil {
			return outcome{err: ctx.Err()}
		}
		return r.failure(j, err)
	}
	if j.old != nil {
		r.count(func(c *Counters) { c.Reused++ })
		out.Snapshot, out.Reused = *j.old, true
		return outcome{rendered: &out, until: r.polls(j, j.old.Inputs)}
	}
	opened, err := trees.open(ctx, r.Stage, r.tenant, j)
	var res Result
	if err == nil {
		res, err = r.renderOrShare(ctx, j, opened)
	}
	if ctx.Err() != nil {
		return outcome{err: ctx.Err()}
	}
	if err != nil {
		return r.renderFailed(j, res.Inputs, err)
	}
	if err := unresolvable(j, res.Objects); err != nil {
		return r.failure(j, err)
	}
	r.failing.forget(r.failingKey(j))
	out.Snapshot = hub.Snapshot{
		Application: app.ID, Revision: out.Revision, Revisions: j.commits, ParamsHash: j.params,
		Inputs: res.Inputs, SourceType: res.SourceType, Impure: res.Impure, Warnings: res.Warnings,
		Commit: opened[0].Info(), CreatedAt: r.now,
	}
	out.Snapshot.Commit.Integrity, out.Snapshot.Commit.Rendering = j.integrity, j.rendering(r.tenant, res.Inputs)
	for _, o := range res.Objects {
		out.Snapshot.Objects = append(out.Snapshot.Objects, o.Ref)
		out.Bodies = append(out.Bodies, o.JSON)
	}
	return outcome{rendered: &out, until: r.polls(j, res.Inputs)}
}

// renderOrShare renders, unless another application of the tenant has the same
// result. A render that a user requests is always done.
func (r *round) renderOrShare(ctx context.Context, j *job, opened []hub.Tree) (Result, error) {
	req := r.connected(ctx, j, j.request(r.tenant, opened))
	key := keyOf(req, j.commits)
	if !j.refresh.Forced {
		if end := r.shared.begin(ctx, key); end != nil {
			defer end()
		} else if res, ok := r.shared.get(key, req); ok {
			r.count(func(c *Counters) { c.Reused++ })
			return res, nil
		}
	}
	res, err := r.renderer.Render(ctx, req)
	if err == nil {
		r.count(func(c *Counters) { c.Rendered++ })
		r.shared.put(key, req.Application, res)
	}
	return res, err
}

func (r *round) failure(j *job, err error) outcome {
	one := &round{Stage: r.Stage, tenant: r.tenant, now: r.now, leases: r.leases}
	one.fail(j, hub.ComparisonError, err)
	if len(one.failures) == 0 {
		return outcome{err: err}
	}
	return outcome{failed: &one.failures[0], passing: passes(err) && j.asked == ""}
}
