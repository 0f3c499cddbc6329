// Package observe stores the reports of agents as the newest value of each
// object, operation and application. It sends no requests to clusters and
// changes no desired state. The store refuses a report about an object of
// another cluster, because the cluster comes from the certificate. The daemon
// adds the service to each agent session. What is acknowledged is stored.
package observe

import (
	"context"
	"errors"
	"github.com/capstan-cd/capstan/shared/logkey"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Store stores observations.
type Store interface {
	// PutObservation stores one report and returns the result. Reports may
	// arrive twice.
	PutObservation(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, o hub.Observation) (hub.Observed, error)
}

// Caller returns the cluster of a stream, from its certificate.
type Caller func(ctx context.Context) (hub.TenantID, hub.ClusterID, error)

// Notifier are given after a report has been stored. They must not block, but for
// Wait.
type Notifier struct {
	Changed func(hub.TenantID)                  // the tenant's feed moved
	Over    func()                              // operations wait to be settled
	Wait    func(context.Context, hub.TenantID) // returns when there is time for reports of the tenant; nil: always
}

// A Service is the link service Observed.
type Service struct {
	linkv1.UnimplementedObservedServer
	store  Store
	caller Caller
	notify Notifier
	log    *slog.Logger
}

// New makes the service.
func New(store Store, caller Caller, notify Notifier, log *slog.Logger) *Service {
	return &Service{store: store, caller: caller, notify: notify, log: log}
}

// Report stores each message and acknowledges it. A message that cannot be
// understood ends the stream with a sentence; one that cannot be stored now
// ends it too, and the agent sends it again.
func (s *Service) Report(stream grpc.BidiStreamingServer[linkv1.ReportUp, linkv1.ReportDown]) error {
	ctx := stream.Context()
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return err
	}
	var g grant
	if err := stream.Send(g.on(&linkv1.ReportDown{})); err != nil {
		return err
	}
	for {
		if s.notify.Wait != nil {
			s.notify.Wait(ctx, tenant)
		}
		up, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		begun := time.Now()
		seen, err := s.storeReport(ctx, tenant, cluster, up)
		if err != nil {
			return err
		}
		g.took(time.Since(begun))
		down := &linkv1.ReportDown{Acked: up.Seq, Resnapshot: seen.Resnapshot, Compare: comparison(up, seen.Comparison)}
		if err := stream.Send(g.on(down)); err != nil {
			return err
		}
	}
}

func (s *Service) storeReport(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, up *linkv1.ReportUp) (hub.Observed, error) {
	o, err := observation(cluster, up)
	if err != nil {
		s.log.WarnContext(ctx, "report of an agent is not valid", logkey.Cluster, cluster, logkey.Error, err)
		return hub.Observed{}, err
	}
	failpoint.Here(failpoint.HubReportBefore)
	seen, err := s.store.PutObservation(ctx, tenant, cluster, o)
	if err != nil {
		s.log.ErrorContext(ctx, "report of an agent cannot be stored", logkey.Cluster, cluster, logkey.Error, err)
		return seen, err
	}
	failpoint.Here(failpoint.HubReportAfter)
	if len(seen.Over) > 0 {
		s.notify.Over()
	}
	if !seen.Repeated {
		s.notify.Changed(tenant)
	}
	return seen, nil
}

// observation reads a message; identifiers are checked before they reach a
// query.
func observation(cluster hub.ClusterID, up *linkv1.ReportUp) (o hub.Observation, err error) {
	o = hub.Observation{Epoch: up.Epoch, Seq: int64(up.Seq), Snapshot: int64(up.Snapshot), Sums: sums(up.Sums)}
	if up.Sweep != nil {
		o.Sweep, o.Bounded = int64(up.Sweep.Snapshot), up.Sweep.Bounded
		for _, b := range up.Sweep.Buckets {
			o.Buckets = append(o.Buckets, uint16(b))
		}
	}
	if o.Applications, err = readEach(up.Apps, application); err != nil {
		return o, err
	}
	o.Resources, err = readEach(up.Resources, func(r *linkv1.Resource) (hub.Resource, error) {
		return resource(cluster, r), valid("application", r.AppId)
	})
	if err != nil {
		return o, err
	}
	if o.Gone, err = readEach(up.Gone, gone); err != nil {
		return o, err
	}
	o.Closed, err = readEach(up.Closed, func(c *linkv1.TombstoneClosed) (hub.Tombstone, error) {
		return closed(cluster, c), valid("application", c.AppId)
	})
	if err != nil {
		return o, err
	}
	o.Operations, err = readEach(up.Operations, operation)
	return o, err
}

// readEach reads the parts of a message, up to one that is not valid.
func readEach[In, Out any](parts []In, read func(In) (Out, error)) ([]Out, error) {
	var out []Out
	for _, p := range parts {
		v, err := read(p)
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

func gone(g *linkv1.ResourceGone) (hub.ResourceGone, error) {
	return hub.ResourceGone{
		Application: hub.ApplicationID(g.AppId), UID: g.Uid, Group: g.Group, Kind: g.Kind, Namespace: g.Namespace, Name: g.Name,
	}, valid("application", g.AppId)
}

func closed(cluster hub.ClusterID, c *linkv1.TombstoneClosed) hub.Tombstone {
	return hub.Tombstone{
		Application: hub.ApplicationID(c.AppId), Cluster: cluster, Group: c.Group, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name,
	}
}

// application reads what is said of one application.
func application(a *linkv1.AppReport) (hub.ApplicationObservation, error) {
	if err := valid("application", a.AppId); err != nil {
		return hub.ApplicationObservation{}, err
	}
	if err := validIfSet("snapshot", a.Target); err != nil {
		return hub.ApplicationObservation{}, err
	}
	if err := validIfSet("operation", a.Unblocked); err != nil {
		return hub.ApplicationObservation{}, err
	}
	return hub.ApplicationObservation{
		Application: hub.ApplicationID(a.AppId), Target: hub.SnapshotID(a.Target), Generation: int64(a.Generation),
		Sync: syncOf(a.Sync), Health: healthOf(a.Health), HealthCause: a.HealthCause,
		ComparedAt: time.Unix(0, a.ComparedUnixNano), Warnings: a.Warnings, Notes: notes(a.Notes), Excluded: a.Excluded, Error: a.Error, Gone: a.Gone, Stamp: a.Stamp,
		Unblocked: hub.OperationID(a.Unblocked),
	}, nil
}

func validIfSet(what, id string) error {
	if id == "" {
		return nil
	}
	return valid(what, id)
}

// notes keeps what has a type that agents may report; others would take the
// place of what the hub itself says.
func notes(in []*linkv1.Note) []hub.Note {
	var out []hub.Note
	for _, n := range in {
		switch n.GetType() {
		case hub.SharedWarning, hub.OrphanedWarning:
		default:
			n = &linkv1.Note{Type: hub.AgentWarning, Message: n.GetMessage()}
		}
		out = append(out, hub.Note{Type: n.GetType(), Message: n.GetMessage()})
	}
	return out
}

// linksOf returns the links that a browser may open: an agent is trusted about
// its cluster, not about the content of pages.
func linksOf(in []string) []string {
	const most, longest = 20, 2048
	var out []string
	for _, l := range in {
		if _, _, ok := hub.SplitLink(l); ok && len(l) <= longest && len(out) < most {
			out = append(out, l)
		}
	}
	return out
}

func resource(cluster hub.ClusterID, r *linkv1.Resource) hub.Resource {
	out := hub.Resource{
		Cluster: cluster, Application: hub.ApplicationID(r.AppId), UID: r.Uid, Parent: r.Parent,
		Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		Managed: r.Managed, Message: r.Message, RequiresPrune: r.RequiresPrune, Hook: r.Hook, Wave: r.Wave, DiffSummary: r.Diff, Orphan: r.Orphan, Stamp: r.Stamp,
		Confirm: r.ConfirmDeletion, Links: linksOf(r.Links),
	}
	if r.Sync != "" {
		out.Sync = syncOf(r.Sync)
	}
	if r.Health != "" {
		out.Health = healthOf(r.Health)
	}
	for _, c := range r.Info {
		out.Info = append(out.Info, hub.Info{Name: c.Name, Value: c.Value})
	}
	if r.CreatedUnix != 0 {
		at := time.Unix(r.CreatedUnix, 0)
		out.CreatedAt = &at
	}
	return out
}

func operation(op *linkv1.OperationReport) (hub.OperationObservation, error) {
	if err := valid("operation", op.OperationId); err != nil {
		return hub.OperationObservation{}, err
	}
	if err := valid("application", op.AppId); err != nil {
		return hub.OperationObservation{}, err
	}
	out := hub.OperationObservation{
		Operation: hub.OperationID(op.OperationId), Application: hub.ApplicationID(op.AppId), Phase: hub.Phase(op.Phase), Message: op.Message,
		StartedAt: instant(op.StartedUnixNano), FinishedAt: instant(op.FinishedUnixNano), HealthyAt: instant(op.HealthyUnixNano),
		Trace: op.Traceparent,
	}
	switch out.Phase {
	case hub.Running, hub.Terminating, hub.Succeeded, hub.Failed, hub.Errored:
	default:
		return out, fault.New(fault.Invalid, "operation %s has the unknown phase %q", op.OperationId, op.Phase)
	}
	for _, r := range op.Results {
		out.Results = append(out.Results, hub.ObjectResult{
			Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Status: r.Status,
			Message: r.Message, HookType: r.HookType, HookPhase: r.HookPhase, SyncPhase: r.SyncPhase, Wave: r.Wave,
		})
	}
	return out, nil
}

func valid(what, id string) error {
	if !hub.ValidID(id) {
		return fault.New(fault.Invalid, "%q is no %s id", id, what)
	}
	return nil
}

// syncOf and healthOf turn a word that this version does not know into
// Unknown: a newer agent must not break the report.
func syncOf(s string) hub.SyncStatus {
	switch got := hub.SyncStatus(s); got {
	case hub.Synced, hub.OutOfSync:
		return got
	}
	return hub.SyncUnknown
}

func healthOf(s string) hub.HealthStatus {
	switch got := hub.HealthStatus(s); got {
	case hub.Healthy, hub.Suspended, hub.Progressing, hub.MissingHealth, hub.Degraded:
		return got
	}
	return hub.HealthUnknown
}

func instant(nano int64) *time.Time {
	if nano == 0 {
		return nil
	}
	t := time.Unix(0, nano)
	return &t
}
