package resync_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"testing"
	"time"

	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/agent/report"
	"github.com/capstan-cd/capstan/hub/observe"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// wire is one stream of reports, in memory: what the agent had on the way, and
// what the hub answered until the cut.
type wire struct {
	grpc.BidiStreamingServer[linkv1.ReportUp, linkv1.ReportDown]
	ctx context.Context
	in  []*linkv1.ReportUp
	out []*linkv1.ReportDown
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) Recv() (*linkv1.ReportUp, error) {
	if len(w.in) == 0 {
		return nil, io.EOF
	}
	up := w.in[0]
	w.in = w.in[1:]
	return up, nil
}

func (w *wire) Send(down *linkv1.ReportDown) error {
	w.out = append(w.out, down)
	return nil
}

// agent is one life after another of a process that sees a cluster.
type agent struct {
	t      *rapid.T
	hub    *observe.Service
	clock  *runtest.Clock
	lives  int
	epoch  string
	outbox *report.Outbox
	onWay  []*linkv1.ReportUp // not acknowledged
	truth  map[string]string
	app    string
}

func (a *agent) begin() {
	a.lives++
	a.epoch, a.onWay = fmt.Sprintf("%d-%d", a.clock.Now().UnixNano(), a.lives), nil
	a.outbox = report.New(a.epoch, a.clock, func(string) {}, slog.New(slog.DiscardHandler))
	a.outbox.Compares(true)
	for name, v := range a.truth {
		a.outbox.Resource(object(a.app, name, v))
	}
	a.outbox.App(&linkv1.AppReport{AppId: a.app, Generation: 1, Sync: "Synced", Health: "Healthy", ComparedUnixNano: a.clock.Now().UnixNano()})
	a.outbox.Ready()
}

// collect takes up to n reports from the outbox, as the link does.
func (a *agent) collect(n int) {
	for range n {
		a.clock.Advance(5 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		up, err := a.outbox.Next(ctx)
		cancel()
		if err != nil {
			return
		}
		a.onWay = append(a.onWay, up)
	}
}

// exchange opens a stream: the hub takes the first of what is on the way, and
// the agent hears the first of its answers before the stream is cut.
func (a *agent) exchange(taken, heard int) {
	w := &wire{ctx: context.Background(), in: a.onWay[:min(taken, len(a.onWay))]}
	if err := a.hub.Report(w); err != nil && !errors.Is(err, io.EOF) {
		a.t.Fatalf("the hub refused: %v", err)
	}
	for i, down := range w.out {
		if i > heard {
			break
		}
		for len(a.onWay) > 0 && a.onWay[0].GetSeq() <= down.GetAcked() {
			a.onWay = a.onWay[1:]
		}
		a.outbox.Acked(a.epoch, down.GetAcked(), down.GetCredit())
		a.outbox.Grant(down.GetSnapshotCredit())
		if down.GetCompare() != nil {
			a.outbox.Compare(down.GetCompare())
		}
		if down.GetResnapshot() {
			a.outbox.Resnapshot()
		}
	}
}

func (a *agent) change(name, v string) {
	if v == "" {
		if _, ok := a.truth[name]; ok {
			a.outbox.Removed(object(a.app, name, a.truth[name]))
			delete(a.truth, name)
		}
		return
	}
	a.truth[name] = v
	a.outbox.Resource(object(a.app, name, v))
}

// 12.9: any interleaving of cuts ends with equal roots and no unasked delete.
func TestAnyCuts(t *testing.T) {
	w := newWorld(t, 1)
	app := string(w.apps[0])
	clock := runtest.NewClock(time.Now())
	rapid.Check(t, func(t *rapid.T) {
		a := &agent{t: t, hub: w.observe(), clock: clock, truth: map[string]string{}, app: app}
		a.begin()
		steady := fmt.Sprintf("steady-%d", clock.Now().UnixNano())
		a.change(steady, "stays")
		known := false
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			_, there := w.held()[app+"/"+steady]
			if known && !there {
				t.Fatal("INV-3 the hub forgot an object that was there all the time")
			}
			known = known || there
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				a.change(rapid.StringMatching(`[a-f]`).Draw(t, "name"), rapid.StringMatching(`[xyz]?`).Draw(t, "value"))
			case 1:
				a.collect(rapid.IntRange(1, 3).Draw(t, "gathered"))
			case 2, 3:
				a.exchange(rapid.IntRange(0, 4).Draw(t, "taken"), rapid.IntRange(0, 4).Draw(t, "heard"))
			case 4: // changes while nobody looks, then another life
				if name := rapid.StringMatching(`[a-f]`).Draw(t, "name"); a.truth[name] != "" && rapid.Bool().Draw(t, "gone") {
					delete(a.truth, name)
				} else {
					a.truth[name] = rapid.StringMatching(`[xyz]`).Draw(t, "value")
				}
				a.begin()
			case 5:
				a.outbox.Resnapshot()
			}
		}
		for i := 0; i < 50 && !(a.outbox.Agreed() && len(a.onWay) == 0); i++ {
			a.collect(10)
			a.exchange(len(a.onWay), 100)
		}
		want := map[string]string{}
		for name, v := range a.truth {
			want[app+"/"+name] = v
		}
		if got := w.held(); !maps.Equal(got, want) {
			t.Fatalf("the hub holds %v, the agent sees %v", got, want)
		}
		if !a.outbox.Agreed() {
			t.Fatal("the agent does not come to rest")
		}
	})
}
