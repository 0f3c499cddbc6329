package observe_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/observe"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	app  = "018f0000-0000-7000-8000-000000000001"
	op   = "018f0000-0000-7000-8000-000000000002"
	snap = "018f0000-0000-7000-8000-000000000003"
)

var errStore = errors.New("the database is gone")

// world is a store, a stream and hints in memory.
type world struct {
	grpc.BidiStreamingServer[linkv1.ReportUp, linkv1.ReportDown]
	ctx     context.Context
	in      []*linkv1.ReportUp
	out     []*linkv1.ReportDown
	stored  []hub.Observation
	result  hub.Observed
	err     error
	changed int
	over    int
	denied  error
}

func (w *world) Context() context.Context { return w.ctx }

func (w *world) Recv() (*linkv1.ReportUp, error) {
	if len(w.in) == 0 {
		return nil, io.EOF
	}
	up := w.in[0]
	w.in = w.in[1:]
	return up, nil
}

func (w *world) Send(down *linkv1.ReportDown) error {
	w.out = append(w.out, down)
	return nil
}

func (w *world) PutObservation(_ context.Context, tenant hub.TenantID, cluster hub.ClusterID, o hub.Observation) (hub.Observed, error) {
	if tenant != "acme" || cluster != "prod" {
		return hub.Observed{}, errors.New("not the certificate's cluster")
	}
	if w.err == nil {
		w.stored = append(w.stored, o)
	}
	return w.result, w.err
}

func (w *world) report(t *testing.T, in ...*linkv1.ReportUp) error {
	t.Helper()
	w.ctx, w.in = t.Context(), in
	s := observe.New(w, func(context.Context) (hub.TenantID, hub.ClusterID, error) { return "acme", "prod", w.denied },
		observe.Notifier{Changed: func(hub.TenantID) { w.changed++ }, Over: func() { w.over++ }}, slog.New(slog.DiscardHandler))
	return s.Report(w)
}

func TestReport(t *testing.T) {
	t.Parallel()
	t.Run("INV-1 what is acknowledged is stored", func(t *testing.T) {
		t.Parallel()
		w := &world{result: hub.Observed{Over: []hub.OperationID{op}}}
		if err := w.report(t, &linkv1.ReportUp{Epoch: "e", Seq: 1}, &linkv1.ReportUp{Epoch: "e", Seq: 2}); err != nil {
			t.Fatal(err)
		}
		if len(w.stored) != 2 || len(w.out) != 3 || w.out[0].Credit == 0 || w.out[0].Acked != 0 || w.out[2].Acked != 2 || w.over != 2 || w.changed != 2 {
			t.Errorf("stored %v, answers %v, hints %d %d", w.stored, w.out, w.over, w.changed)
		}
	})
	t.Run("INV-1 what cannot be stored is not acknowledged", func(t *testing.T) {
		t.Parallel()
		w := &world{err: errStore}
		if err := w.report(t, &linkv1.ReportUp{Epoch: "e", Seq: 1}); !errors.Is(err, errStore) || len(w.out) != 1 || w.changed != 0 {
			t.Errorf("%v, answers %v", err, w.out)
		}
	})
	t.Run("INV-2 a report that came before is acknowledged and changes nothing", func(t *testing.T) {
		t.Parallel()
		w := &world{result: hub.Observed{Repeated: true}}
		if err := w.report(t, &linkv1.ReportUp{Epoch: "e", Seq: 1}); err != nil || w.out[1].Acked != 1 || w.changed != 0 {
			t.Errorf("%v, answers %v", err, w.out)
		}
	})
	t.Run("INV-5 an agent whose earlier reports are missing must send everything", func(t *testing.T) {
		t.Parallel()
		w := &world{result: hub.Observed{Resnapshot: true}}
		if err := w.report(t, &linkv1.ReportUp{Epoch: "e", Seq: 9}); err != nil || !w.out[1].Resnapshot {
			t.Errorf("%v, answers %v", err, w.out)
		}
	})
	t.Run("ISO-1 nothing is accepted without a certificate", func(t *testing.T) {
		t.Parallel()
		w := &world{denied: fault.New(fault.Unknown, "no certificate")}
		if err := w.report(t, &linkv1.ReportUp{Epoch: "e", Seq: 1}); fault.KindOf(err) != fault.Unknown || len(w.stored)+len(w.out) != 0 {
			t.Errorf("%v, stored %v", err, w.stored)
		}
	})
}

func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	for name, up := range map[string]*linkv1.ReportUp{
		"application id":             {Apps: []*linkv1.AppReport{{AppId: "x'; DROP TABLE"}}},
		"snapshot id":                {Apps: []*linkv1.AppReport{{AppId: app, Target: "newest"}}},
		"application of a node":      {Resources: []*linkv1.Resource{{AppId: ""}}},
		"application of a gone":      {Gone: []*linkv1.ResourceGone{{AppId: "1"}}},
		"application of a tombstone": {Closed: []*linkv1.TombstoneClosed{{AppId: "1"}}},
		"operation id":               {Operations: []*linkv1.OperationReport{{OperationId: "1", AppId: app, Phase: "Running"}}},
		"application of it":          {Operations: []*linkv1.OperationReport{{OperationId: op, AppId: "1", Phase: "Running"}}},
		"phase":                      {Operations: []*linkv1.OperationReport{{OperationId: op, AppId: app, Phase: "Pending"}}},
		"phase of tomorrow":          {Operations: []*linkv1.OperationReport{{OperationId: op, AppId: app, Phase: "Dreaming"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			if err := w.report(t, up); fault.KindOf(err) != fault.Invalid || len(w.stored) != 0 || len(w.out) != 1 {
				t.Errorf("%v, stored %v, answers %v", err, w.stored, w.out)
			}
		})
	}
}

func TestReportIsRead(t *testing.T) {
	t.Parallel()
	w := &world{}
	at := time.Unix(1_700_000_000, 0)
	err := w.report(t, &linkv1.ReportUp{
		Epoch: "e", Seq: 3, Snapshot: 2, Sweep: &linkv1.Sweep{Snapshot: 2},
		Apps: []*linkv1.AppReport{{AppId: app, Target: snap, Generation: 4, Sync: "Synced", Health: "Dazzling", ComparedUnixNano: at.UnixNano()}},
		Resources: []*linkv1.Resource{
			{AppId: app, Kind: "Deployment", Name: "web", Managed: true, Sync: "Sideways", Health: "Degraded", CreatedUnix: at.Unix()},
			{AppId: app, Kind: "Pod", Name: "web-1"},
		},
		Operations: []*linkv1.OperationReport{{OperationId: op, AppId: app, Phase: "Succeeded", FinishedUnixNano: at.UnixNano()}},
	})
	if err != nil || len(w.stored) != 1 {
		t.Fatal(err, w.stored)
	}
	want := hub.Observation{
		Epoch: "e", Seq: 3, Snapshot: 2, Sweep: 2,
		Applications: []hub.ApplicationObservation{{Application: app, Target: snap, Generation: 4, Sync: hub.Synced, Health: hub.HealthUnknown, ComparedAt: at}},
		Resources: []hub.Resource{
			{Cluster: "prod", Application: app, Kind: "Deployment", Name: "web", Managed: true, Sync: hub.SyncUnknown, Health: hub.Degraded, CreatedAt: &at},
			{Cluster: "prod", Application: app, Kind: "Pod", Name: "web-1"},
		},
		Operations: []hub.OperationObservation{{Operation: op, Application: app, Phase: hub.Succeeded, FinishedAt: &at}},
	}
	t.Run("INV-14 unknown values of a newer agent become Unknown, absent ones stay absent, times stay absent", func(t *testing.T) {
		if diff := cmp.Diff(want, w.stored[0]); diff != "" {
			t.Error(diff)
		}
	})
}
