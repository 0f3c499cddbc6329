package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// The Lease of the agents of one cluster. A holder renews it every ten seconds
// and writes only while more than the request timeout remains; a successor
// waits for its end and one more request timeout.
const (
	LeaseName     = "capstan-agent"
	leaseFor      = 30 * time.Second
	leaseRenew    = 10 * time.Second
	requestLimit  = 10 * time.Second
	leaseRetry    = 2 * time.Second
	leaseTimeForm = "2006-01-02T15:04:05.000000Z07:00"
)

// A Lease prevents two agents of one cluster from writing at the same time.
type Lease struct {
	client dynamic.ResourceInterface
	holder string
	clock  lifecycle.Clock
	log    *slog.Logger
	held   chan struct{} // closed when the lease is held for the first time
	soon   chan struct{} // capacity 1: renew now

	mu     sync.Mutex
	until  time.Time // of our clock; zero: not held
	seen   time.Time // when the other holder's current record was first seen
	record string    // of the other holder
	other  string
	wrote  string    // time of our newest record that the server has confirmed; empty: none
	note   [2]string // an annotation, by key; empty: none

	undone func(ctx context.Context) // nil: no observer
}

// NewLease makes a lease in the agent's namespace. The holder is the same for a
// process that was restarted with the same state directory, and different for
// all others.
func NewLease(client dynamic.Interface, namespace, holder string, clock lifecycle.Clock, log *slog.Logger) *Lease {
	gvr := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return &Lease{client: client.Resource(gvr).Namespace(namespace), holder: holder, clock: clock, log: log, held: make(chan struct{}), soon: make(chan struct{}, 1)}
}

// Undone sets, before Run, what is called when the cluster has lost a confirmed
// record: its etcd was restored from a backup, and all state seen since may be
// reverted. False alarms are possible, if a person deletes the lease or the
// next holder's clock is behind.
func (l *Lease) Undone(report func(ctx context.Context)) { l.undone = report }

// Annotate adds an annotation to the next record, which is written at once.
func (l *Lease) Annotate(key, value string) {
	l.mu.Lock()
	same := l.note == [2]string{key, value}
	l.note = [2]string{key, value}
	l.mu.Unlock()
	if same {
		return
	}
	select {
	case l.soon <- struct{}{}:
	default: // the next renewal writes it
	}
}

// Held is closed once the lease is held for the first time.
func (l *Lease) Held() <-chan struct{} { return l.held }

// Check reports whether a write may start now.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.Sub(l.clock.Now()) > requestLimit {
		return nil
	}
	if l.other != "" {
		return fault.New(fault.Offline, "another agent (%s) writes to this cluster now", l.other)
	}
	return fault.New(fault.Offline, "the agent's lease could not be renewed, so another agent may write to this cluster")
}

// Run acquires and renews the lease until ctx ends, releases it and returns
// nil.
func (l *Lease) Run(ctx context.Context) error {
	var reminder lifecycle.Reminder
	for {
		wait := leaseRenew
		err := l.renew(ctx)
		if err != nil {
			wait = leaseRetry
		}
		l.reportLoss(ctx, &reminder, err)
		lifecycle.Expect(ctx, wait)
		tick, stop := l.clock.After(wait)
		select {
		case <-ctx.Done():
			stop()
			l.release(ctx)
			return nil
		case <-l.soon:
			stop()
		case <-tick:
		}
		lifecycle.Beat(ctx)
	}
}

// reportLoss logs why the lease is not held: each cause once, and then at
// growing intervals.
func (l *Lease) reportLoss(ctx context.Context, reminder *lifecycle.Reminder, err error) {
	cause := ""
	if err != nil {
		cause = err.Error()
	}
	due, before := reminder.Due(l.clock.Now(), cause)
	switch {
	case due && ctx.Err() == nil:
		l.log.WarnContext(ctx, "lease not held, nothing is written to the cluster; will retry", logkey.Error, err, logkey.Wait, leaseRetry)
	case err == nil && before:
		l.log.InfoContext(ctx, "lease held")
	}
}

// renew acquires or renews the lease, if that is permitted.
func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	begun := l.clock.Now()
	held, err := l.client.Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read lease %q: %w", LeaseName, err)
	}
	if err != nil {
		held = nil
	}
	l.compare(ctx, held)
	if held == nil {
		held, err = l.client.Create(ctx, l.object(nil), metav1.CreateOptions{})
		return l.took(begun, held, err)
	}
	if err := l.admits(held); err != nil {
		return err
	}
	held, err = l.client.Update(ctx, l.object(held), metav1.UpdateOptions{})
	failpoint.Here(failpoint.AgentLeaseAfter)
	return l.took(begun, held, err)
}

// compare checks whether the record that was read, nil if there is none, is
// older than one that the server has confirmed. Resource versions would not
// show it: other writers may have increased them.
func (l *Lease) compare(ctx context.Context, held *unstructured.Unstructured) {
	l.mu.Lock()
	back := l.wrote != "" && renewTime(held) < l.wrote
	if back {
		l.wrote = "" // the loss is reported once
	}
	l.mu.Unlock()
	if back && l.undone != nil {
		l.undone(ctx)
	}
}

// renewTime reads the time of a record. Times of this form sort as text.
func renewTime(held *unstructured.Unstructured) string {
	if held == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(held.Object, "spec", "renewTime")
	return text
}

func (l *Lease) took(begun time.Time, held *unstructured.Unstructured, err error) error {
	if err != nil {
		return fmt.Errorf("write lease %q: %w", LeaseName, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.until.IsZero()
	l.until, l.other, l.wrote = begun.Add(leaseFor), "", renewTime(held)
	if first {
		select {
		case <-l.held:
		default:
			close(l.held)
		}
	}
	return nil
}

// admits reports whether the lease may be acquired. The time of another holder
// is measured by our own clock: its record must be unchanged for its duration
// plus one request timeout.
func (l *Lease) admits(held *unstructured.Unstructured) error {
	holder, _, _ := unstructured.NestedString(held.Object, "spec", "holderIdentity")
	if holder == "" || holder == l.holder {
		return nil
	}
	seconds, _, _ := unstructured.NestedInt64(held.Object, "spec", "leaseDurationSeconds")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = holder
	now := l.clock.Now()
	if l.record != held.GetResourceVersion() {
		l.record, l.seen = held.GetResourceVersion(), now
	}
	free := l.seen.Add(time.Duration(seconds)*time.Second + requestLimit)
	if now.Before(free) {
		return fault.New(fault.Conflict, "another agent (%s) holds the lease", holder)
	}
	return nil
}

func (l *Lease) object(held *unstructured.Unstructured) *unstructured.Unstructured {
	o := held
	if o == nil {
		o = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": LeaseName},
		}}
	}
	o.Object["spec"] = map[string]any{
		"holderIdentity":       l.holder,
		"leaseDurationSeconds": int64(leaseFor / time.Second),
		"renewTime":            l.clock.Now().UTC().Format(leaseTimeForm),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := l.note[0]; key != "" {
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[key] = l.note[1]
		o.SetAnnotations(notes)
	}
	return o
}

// release ends the lease, so that a successor starts at once.
func (l *Lease) release(ctx context.Context) {
	l.mu.Lock()
	mine := !l.until.IsZero()
	l.until = time.Time{}
	l.mu.Unlock()
	if !mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	held, err := l.client.Get(ctx, LeaseName, metav1.GetOptions{})
	if err == nil {
		if holder, _, _ := unstructured.NestedString(held.Object, "spec", "holderIdentity"); holder != l.holder {
			return
		}
		held.Object["spec"] = map[string]any{"holderIdentity": "", "leaseDurationSeconds": int64(1)}
		_, err = l.client.Update(ctx, held, metav1.UpdateOptions{})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.InfoContext(ctx, "lease not given back; a successor will wait for its end", logkey.Error, err)
	}
}
