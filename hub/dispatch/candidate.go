package dispatch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// candidate decides about one rendered application.
func (c *change) candidate(ctx context.Context, r hub.Rendered) error {
	app, there := c.apps[r.Application]
	if !there || app.DeletingAt != nil {
		return nil
	}
	if r.Operation != "" {
		return c.awaited(ctx, app, r)
	}
	if app.Generation != r.Generation {
		// Somebody changed it while it was rendered: look at it anew.
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	spec, err := c.spec(app)
	if err != nil {
		return err
	}
	if c.skipped(app) != "" {
		return c.leaveBe(ctx, app)
	}
	if c.restricted(app, spec) != nil { // since it was rendered; the refresh that follows says so
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	candidate := c.snaps[r.Snapshot.ID]
	if c.verified(app, spec, candidate) != nil { // the project has changed since
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	candidate.Revision, candidate.Revisions = r.Revision, r.Revisions
	s, err := c.planInput(ctx, app, spec, candidate)
	if err != nil {
		return err
	}
	if err := c.moveAway(ctx, app); err != nil {
		return err
	}
	d, err := c.decide(ctx, s)
	if err != nil {
		return err
	}
	m, err := c.moveOf(ctx, s, d)
	if err != nil {
		return err
	}
	if err := c.move(ctx, m); err != nil || !d.Supersede {
		return err
	}
	// The agent ends it when it hears of the newer one.
	return c.tx.EndOperation(ctx, s.Running.ID, hub.Failed, "superseded by revision "+r.Revision)
}

// decide returns the decision about a candidate and schedules the work that
// has to follow at a later time.
func (c *change) decide(ctx context.Context, s plan.Input) (plan.Decision, error) {
	if s.Changed && s.Failed != nil && s.Failed.RetryAt != nil {
		// Its time was set under other windows.
		if err := c.tx.Enqueue(ctx, WorkRetry, string(s.Failed.ID), c.now, false); err != nil {
			return plan.Decision{}, err
		}
	}
	d, err := c.patient(ctx, s.Application, s.Candidate, plan.Next(s))
	if err != nil {
		return d, err
	}
	if d.Again != nil {
		err = c.tx.Enqueue(ctx, WorkRefresh, string(s.Application.ID), *d.Again, false)
	}
	return d, err
}

// planInput gathers what decides about a candidate.
func (c *change) planInput(ctx context.Context, app hub.Application, spec hub.ApplicationSpec, candidate hub.Snapshot) (plan.Input, error) {
	s := plan.Input{
		Application: app, Spec: spec, Candidate: candidate,
		OnlyPrunes:      onlyPrunes(c.snaps[app.Status.Accepted], candidate),
		AcceptedObjects: len(c.snaps[app.Status.Accepted].Objects), Windows: c.windows(app, spec), Now: c.now,
		Changed: app.Status.PlannedProject != c.versions[app.Project], Served: c.clusters[app.Cluster].UpdatedAt,
	}
	if p := app.Pin; p != nil {
		if err := c.need(ctx, []hub.SnapshotID{p.Snapshot, p.Bad}); err != nil {
			return s, err
		}
		s.RendersSkipped, s.RendersPinned = sameObjects(candidate, c.snaps[p.Bad]), sameObjects(candidate, c.snaps[p.Snapshot])
	}
	s.Renderers = hub.ChangeOfRenderers(c.snaps[app.Status.Target], app.Status.Revisions, candidate)
	if op, ok := c.open[app.ID]; ok {
		s.Running, s.RunningHasHooks = &op, hasHooks(c.snaps[op.Snapshot])
	}
	if op, ok := c.newest[app.ID]; ok && (op.Phase == hub.Failed || op.Phase == hub.Errored) {
		s.Failed = &op
	}
	return s, nil
}

// moveOf is the change that follows from a decision about a candidate.
func (c *change) moveOf(ctx context.Context, s plan.Input, d plan.Decision) (move, error) {
	app, candidate := s.Application, s.Candidate
	m := move{app: app, spec: s.Spec, target: d.Target, accept: d.Accept, op: d.Operation, hold: d.Hold, unpin: d.Unpin,
		revision: candidate.Revision, revisions: candidate.Revisions, sourceType: candidate.SourceType, refreshed: true}
	switch {
	case d.Pin != nil:
		m.pin = changedPin(app.Pin, d.Pin)
	case app.Pin != nil && !d.Unpin:
		m.pin = pinWhilePaused(*app.Pin, candidate, s.RendersPinned)
	}
	if d.Target == candidate.ID {
		return m, nil
	}
	// A pin keeps the target: the candidate's commit is not what it is.
	if err := c.need(ctx, []hub.SnapshotID{d.Target}); err != nil {
		return m, err
	}
	kept := c.snaps[d.Target]
	m.revision, m.revisions, m.sourceType = kept.Revision, kept.Revisions, kept.SourceType
	if d.Target == app.Status.Target { // another commit may have given these manifests first
		m.revision, m.revisions = app.Status.Revision, app.Status.Revisions
	}
	return m, nil
}

// changedPin is the new pin of an application; nil: it has just this one.
func changedPin(was, is *hub.Pin) *hub.Pin {
	if was != nil && reflect.DeepEqual(*was, *is) {
		return nil
	}
	return is
}

// pinWhilePaused is the pin of an application that stays paused while Git is
// at a candidate; nil: it says so already.
func pinWhilePaused(p hub.Pin, candidate hub.Snapshot, same bool) *hub.Pin {
	if p.Newest == candidate.ID && p.Revision == candidate.Revision && slices.Equal(p.Revisions, candidate.Revisions) && p.Behind == !same {
		return nil
	}
	p.Newest, p.Revision, p.Revisions, p.Behind = candidate.ID, candidate.Revision, candidate.Revisions, !same
	return &p
}

// onlyPrunes reports whether a snapshot differs from the accepted one in ordinary
// objects that it no longer has, and in nothing else.
func onlyPrunes(accepted, candidate hub.Snapshot) bool {
	if accepted.ID == "" || len(candidate.Objects) >= len(accepted.Objects) {
		return false
	}
	stays := make(map[hub.ObjectRef]bool, len(candidate.Objects))
	for _, o := range candidate.Objects {
		stays[o] = true
	}
	for _, o := range accepted.Objects {
		if !stays[o] && o.Hook != "" {
			return false
		}
		delete(stays, o)
	}
	return len(stays) == 0
}

// movePause is how long an application that would delete objects waits before
// it asks again whether another one may list them now.
const movePause = time.Second

// patient puts off an automated operation that would delete objects while
// another application of the same repository is still being rendered: they may
// have moved there, and are handed over as soon as that is known.
func (c *change) patient(ctx context.Context, app hub.Application, candidate hub.Snapshot, d plan.Decision) (plan.Decision, error) {
	if d.Operation == nil || !d.Operation.Options.Prune || app.Cluster == "" {
		return d, nil
	}
	doomed, _ := c.diffTombstones(app, candidate)
	if len(doomed) == 0 {
		return d, nil
	}
	besides := slices.Collect(maps.Keys(c.apps)) // they are decided in this transaction
	other, err := c.tx.Undecided(ctx, app, candidate.Revision, besides)
	if err != nil || other == "" {
		return d, err
	}
	again := c.now.Add(movePause)
	hold := fmt.Sprintf("revision %s would delete %s, and application %s, which may list it now, is still being rendered",
		short(candidate.Revision), describe(doomed), other)
	return plan.Decision{Target: d.Target, Unpin: d.Unpin, Hold: hold, Again: &again}, nil
}

// describe names what is to be deleted.
func describe(tombstones []hub.Tombstone) string {
	name := tombstones[0].Kind + " " + strings.TrimPrefix(tombstones[0].Namespace+"/"+tombstones[0].Name, "/")
	if len(tombstones) == 1 {
		return name
	}
	return fmt.Sprintf("%s and %d more", name, len(tombstones)-1)
}

func short(revision string) string { return revision[:min(len(revision), 8)] }

// moveAway makes clusters that an application no longer goes to forget it;
// its objects there stay. Only a change of its spec can have moved it.
func (c *change) moveAway(ctx context.Context, app hub.Application) error {
	if app.Status.PlannedGeneration == app.Generation || app.Status.PlannedGeneration == 0 {
		return nil
	}
	held, err := c.tx.DesiredClusters(ctx, app.ID)
	if err != nil {
		return err
	}
	for _, cluster := range held {
		if cluster != app.Cluster {
			c.leave(app.ID, cluster)
		}
	}
	return nil
}

// windows are the sync windows that concern an application.
func (c *change) windows(app hub.Application, spec hub.ApplicationSpec) syncwindow.Set {
	return syncwindow.New(c.projects[app.Project].WindowsOf(app.Name, spec.Destination))
}

func hasHooks(s hub.Snapshot) bool {
	return slices.ContainsFunc(s.Objects, func(o hub.ObjectRef) bool { return o.Hook != "" })
}
