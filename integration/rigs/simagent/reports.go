package simagent

import (
	"context"
	"fmt"
	"slices"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An outbox is what an agent reports. Its agent's mutex guards it.
type outbox struct {
	apps     map[string]*linkv1.AppReport
	objects  map[string]map[manifest.Key]bool // reported of each application and not gone
	out      []*linkv1.ReportUp
	made     uint64 // reports, ever
	acked    uint64 // the newest report that the hub has stored
	snapshot uint64
	pending  map[uint64]time.Time // reports with changes, until they are stored
	took     []time.Duration      // how long that was
}

func newOutbox() outbox {
	return outbox{apps: map[string]*linkv1.AppReport{}, objects: map[string]map[manifest.Key]bool{}, pending: map[uint64]time.Time{}}
}

// Drained reports whether the hub has stored all changes.
func (a *Agent) Drained() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.outbox.pending) == 0
}

// StoreTimes are how long the hub took to store each change.
func (a *Agent) StoreTimes() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.outbox.took)
}

// put queues a report; a.mu is held.
func (a *Agent) put(up *linkv1.ReportUp) uint64 {
	a.outbox.made++
	up.Epoch, up.Seq = a.Epoch, a.outbox.made
	a.outbox.out = append(a.outbox.out, up)
	select {
	case a.ready <- struct{}{}:
	default:
	}
	return a.outbox.made
}

// Change reports that objects of an application changed, with a message.
func (a *Agent) Change(objects int, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for app := range a.outbox.apps {
		up := &linkv1.ReportUp{}
		for i := range objects {
			up.Resources = append(up.Resources, &linkv1.Resource{
				AppId: app, Uid: fmt.Sprintf("%s-pod-%d", a.Name, i), Version: "v1", Kind: "Pod", Namespace: "web", Name: fmt.Sprintf("web-%d", i),
				Health: "Healthy", Message: message,
			})
		}
		a.outbox.pending[a.put(up)] = time.Now()
		return
	}
}

// Next, Acked, Resnapshot, Compare and Grant are the Reports.
func (a *Agent) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	for {
		a.mu.Lock()
		if len(a.outbox.out) > 0 {
			up := a.outbox.out[0]
			a.outbox.out = a.outbox.out[1:]
			a.mu.Unlock()
			return up, nil
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.ready:
		}
	}
}

func (a *Agent) Acked(_ string, seq, _ uint64) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outbox.acked = max(a.outbox.acked, seq) // a new stream begins with 0
	for n, at := range a.outbox.pending {
		if n <= seq {
			a.outbox.took = append(a.outbox.took, now.Sub(at))
			delete(a.outbox.pending, n)
		}
	}
}

func (a *Agent) Compare(*linkv1.Compare) {}
func (a *Agent) Grant(uint64)            {}

func (a *Agent) Resnapshot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outbox.snapshot++
	up := &linkv1.ReportUp{Snapshot: a.outbox.snapshot, Sweep: &linkv1.Sweep{Snapshot: a.outbox.snapshot}}
	for _, app := range a.outbox.apps {
		up.Apps = append(up.Apps, app)
	}
	a.put(up)
}
