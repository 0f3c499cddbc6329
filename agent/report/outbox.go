// Package report is the agent's outbox: the newest value of everything to
// report, sent until the hub has stored it. It reads no cluster, never blocks a
// caller that adds a value, and never queues two values of one object: fast
// changes are coalesced. The engine and the tree add values, the link sends
// reports. A value that equals the last one sent is not sent again.
package report

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	quiet         = 50 * time.Millisecond  // least time between two reports under load
	pressing      = 5 * time.Millisecond   // the same for transitions
	crowded       = 100 * time.Millisecond // the same for both after several reports in a row: each report is a transaction of the hub
	crowd         = 4                      // reports in a row until crowded applies
	maxValues     = 256                    // resources in one report
	maxClosed     = 2000                   // closed tombstones in one report
	defaultCredit = 1 << 20                // bytes outstanding until the hub has sent a credit
	most          = 256 << 10              // bytes of values in one report
)

// An Outbox collects changes and returns them as reports.
type Outbox struct {
	epoch     string
	clock     lifecycle.Clock
	log       *slog.Logger
	delivered func(operation string)
	wake      chan struct{}

	mu        sync.Mutex
	values    map[string]*value
	dirty     []string // keys of values, oldest change first
	closed    []*linkv1.TombstoneClosed
	waiting   time.Time // since when a value is dirty; zero: none is
	seq       uint64
	sent      []sent // not acknowledged, in order of seq
	pace      pace
	flow      flow
	snapshots snapshots
	cmp       comparison
}

// pace decides how soon a report may follow the last one.
type pace struct {
	pressing bool // a transition waits
	inARow   int  // reports that followed each other closely
	last     time.Time
}

// flow is how many bytes the hub accepts before it acknowledges some.
type flow struct {
	credit         uint64
	snapshotCredit uint64 // for snapshots, out of credit
	outstanding    uint64
	snapshotBytes  uint64 // of outstanding, what belongs to snapshots
}

// snapshots is the state of the newest snapshot.
type snapshots struct {
	ready      bool   // all objects were seen once since the start
	generation uint64 // of the newest snapshot
	due        bool   // a snapshot must begin
	sending    bool   // the snapshot is under way
	queue      []string
}

// A value is the newest state of one object, application or operation.
type value struct {
	kind  valueKind
	app   string
	uid   string // of a child
	raw   []byte // encoded; nil: deleted
	known []byte // what was sent last; nil: nothing
	dirty bool
	over  bool // an operation that ended

	hash   [8]byte // of raw
	bucket uint16
	leaf   uint64 // contribution of raw to its bucket
	sent   uint64 // contribution of the value that was reported; 0: none
}

type valueKind byte

const (
	appValue valueKind = iota
	managedValue
	childValue
	operationValue
)

type sent struct {
	seq, size  uint64
	snapshot   bool      // part of a snapshot
	since      time.Time // the oldest change in it
	operations []string  // that ended
}

// New makes an outbox. Delivered is called, from the link's goroutine, when
// the hub has the result of an operation.
func New(epoch string, clock lifecycle.Clock, delivered func(operation string), log *slog.Logger) *Outbox {
	return &Outbox{
		epoch: epoch, clock: clock, delivered: delivered, log: log, wake: make(chan struct{}, 1),
		values: map[string]*value{}, flow: flow{credit: defaultCredit, snapshotCredit: defaultCredit}, snapshots: snapshots{due: true},
	}
}

// Ready says that all objects were seen, so that a snapshot may begin. Until
// then only single values are sent.
func (o *Outbox) Ready() {
	o.mu.Lock()
	o.snapshots.ready = true
	o.mu.Unlock()
	o.signal()
}

// Resnapshot starts a snapshot of everything.
func (o *Outbox) Resnapshot() {
	o.mu.Lock()
	o.snapshots.due = true
	o.mu.Unlock()
	o.signal()
}

// Backlog is how many values wait to be sent.
func (o *Outbox) Backlog() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint32(len(o.dirty) + len(o.snapshots.queue))
}

// Lag is the age of the oldest change that the hub has not stored yet.
func (o *Outbox) Lag() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	oldest := o.waiting
	if len(o.sent) > 0 && (oldest.IsZero() || o.sent[0].since.Before(oldest)) {
		oldest = o.sent[0].since
	}
	if oldest.IsZero() {
		return 0
	}
	return max(0, o.clock.Now().Sub(oldest))
}

// App adds the newest report of an application.
func (o *Outbox) App(r *linkv1.AppReport) {
	o.put("a\x00"+r.GetAppId(), value{kind: appValue, app: r.GetAppId()}, r, true)
}

// Resource adds the newest state of a managed object or a child.
func (o *Outbox) Resource(r *linkv1.Resource) {
	v := value{kind: managedValue, app: r.GetAppId()}
	if !r.GetManaged() {
		v.kind, v.uid = childValue, r.GetUid()
	}
	o.put(resourceKey(r.GetManaged(), r.GetAppId(), r.GetUid(), r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName()), v, r, false)
}

// Operation adds the newest state of an operation.
func (o *Outbox) Operation(r *linkv1.OperationReport) {
	v := value{kind: operationValue, app: r.GetAppId(), uid: r.GetOperationId(), over: r.GetFinishedUnixNano() != 0}
	o.put("o\x00"+r.GetOperationId(), v, r, v.over)
}

// Removed says that an object is not managed any more, or that a child is gone.
func (o *Outbox) Removed(r *linkv1.Resource) {
	o.mu.Lock()
	o.remove(resourceKey(r.GetManaged(), r.GetAppId(), r.GetUid(), r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName()))
	o.mu.Unlock()
	o.signal()
}

// Closed says that the object of a tombstone is gone, or was never ours.
func (o *Outbox) Closed(t *linkv1.TombstoneClosed) {
	o.mu.Lock()
	o.closed = append(o.closed, t)
	o.pace.pressing = true
	o.mu.Unlock()
	o.signal()
}

// Forget removes everything of an application.
func (o *Outbox) Forget(app string) {
	o.mu.Lock()
	for key, v := range o.values {
		if v.app != app {
			continue
		}
		if v.kind == managedValue || v.kind == childValue {
			o.remove(key)
			continue
		}
		if v.kind == appValue {
			delete(o.values, key)
		}
	}
	o.mu.Unlock()
	o.signal()
}

func resourceKey(managed bool, app, uid, group, kind, namespace, name string) string {
	if !managed {
		return "c\x00" + uid
	}
	return "m\x00" + app + "\x00" + group + "\x00" + kind + "\x00" + namespace + "\x00" + name
}

func (o *Outbox) put(key string, v value, m proto.Message, pressing bool) {
	m = fitting(m)
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		// This happens only for invalid UTF-8. Other values must still be sent.
		o.log.Error("report value not encoded", logkey.Application, v.app, logkey.Error, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	held, ok := o.values[key]
	if !ok {
		held = &v
		o.values[key] = held
	}
	held.over = v.over
	held.app = v.app
	if ok && bytes.Equal(held.raw, raw) {
		return
	}
	held.raw = raw
	held.stamp(m, raw)
	if o.cmp.since.IsZero() && held.kind != operationValue {
		o.cmp.since = o.clock.Now()
	}
	o.soil(key, held)
	o.pace.pressing = o.pace.pressing || pressing
	o.signal()
}

func (o *Outbox) remove(key string) {
	v, ok := o.values[key]
	if !ok {
		return
	}
	if v.known == nil && !v.dirty {
		delete(o.values, key)
		return
	}
	v.raw = nil
	o.soil(key, v)
}

func (o *Outbox) soil(key string, v *value) {
	if !v.dirty {
		v.dirty = true
		o.dirty = append(o.dirty, key)
		if o.waiting.IsZero() {
			o.waiting = o.clock.Now()
		}
	}
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Next waits for a value to report and for the hub's credit, and returns a
// report. One goroutine may call it at a time.
func (o *Outbox) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	for {
		r, wait := o.next()
		if r != nil {
			return r, nil
		}
		var timer <-chan time.Time
		stop := func() {}
		if wait > 0 {
			timer, stop = o.clock.After(wait)
		}
		select {
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-o.wake:
		case <-timer:
		}
		stop()
	}
}

// next makes a report, or returns how long to wait for one; 0: until notified.
func (o *Outbox) next() (*linkv1.ReportUp, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.flow.outstanding >= o.flow.credit {
		return nil, 0
	}
	now := o.clock.Now()
	o.begin()
	kind, wait := o.choose(now)
	if kind == nothing {
		return nil, wait
	}
	if wait = o.pause() - now.Sub(o.pace.last); wait > 0 && kind == changes {
		return nil, wait
	}
	r := &linkv1.ReportUp{Epoch: o.epoch}
	switch kind {
	case changes:
		o.delta(r, o.mustWait(now))
	case question:
		o.snapshots.due = false
		o.snapshots.generation++
		o.beginComparison(r)
	case details:
		o.answerComparison(r)
	case part:
		o.chunk(r)
	case nothing:
	}
	o.seq++
	r.Seq = o.seq
	if now.Sub(o.pace.last) < 2*crowded {
		o.pace.inARow++
	} else {
		o.pace.inARow = 0
	}
	o.pace.last = now
	o.remember(r)
	return r, 0
}

// The kinds of reports.
type reportKind byte

const (
	nothing  reportKind = iota
	changes             // the newest values of what changed
	question            // hashes of everything: a comparison begins
	details             // hashes inside the buckets that differ
	part                // of a snapshot
)

// choose returns what to send now, or how long to wait before the next call.
func (o *Outbox) choose(now time.Time) (reportKind, time.Duration) {
	holds := o.mustWait(now)
	if o.changed(holds) {
		return changes, 0
	}
	switch {
	case len(o.cmp.wanted) > 0:
		return details, 0
	case o.snapshots.due && o.snapshots.ready && o.cmp.able && !o.cmp.asked:
		return question, 0
	case o.snapshots.sending && o.flow.snapshotBytes > 0 && o.flow.snapshotBytes >= o.flow.snapshotCredit:
		return nothing, 0 // changes continue; the hub gets the rest of the snapshot later
	case o.snapshots.sending:
		return part, 0
	case holds && len(o.dirty) > 0 && !o.cmp.asked && !o.cmp.since.IsZero():
		return nothing, max(time.Millisecond, comparisonWait-now.Sub(o.cmp.since))
	}
	return nothing, 0
}

// changed reports whether a value is waiting that may be sent. While values
// wait for a comparison, values that cannot be compared are sent.
func (o *Outbox) changed(holds bool) bool {
	if len(o.closed) > 0 || !holds && len(o.dirty) > 0 {
		return true
	}
	for _, key := range o.dirty {
		if v := o.values[key]; v != nil && v.kind == operationValue {
			return true
		}
	}
	return false
}

// pause is the least time since the last report.
func (o *Outbox) pause() time.Duration {
	switch {
	case o.snapshots.sending:
		return 0
	case o.pace.inARow >= crowd:
		return crowded
	case o.pace.pressing:
		return pressing
	}
	return quiet
}

// begin starts a full snapshot if one is due and the hub does not compare.
func (o *Outbox) begin() {
	if !o.snapshots.due || !o.snapshots.ready || o.cmp.able {
		return
	}
	o.snapshots.due, o.snapshots.sending = false, true
	o.snapshots.generation++
	o.cmp.buckets = nil
	o.snapshots.queue = o.snapshots.queue[:0]
	for key, v := range o.values {
		if v.raw != nil {
			o.snapshots.queue = append(o.snapshots.queue, key)
		}
	}
}

// delta fills a report with changes; with holds, only with values that cannot
// be compared.
func (o *Outbox) delta(r *linkv1.ReportUp, holds bool) {
	size, n := o.addClosed(r), 0
	rest := o.dirty[:0]
	for _, key := range o.dirty {
		v := o.values[key]
		if n >= maxValues || size >= most || holds && v != nil && v.kind != operationValue {
			rest = append(rest, key)
			continue
		}
		n++
		size += o.add(r, key)
	}
	o.dirty = rest
	if len(o.dirty) > 0 && !holds || len(o.closed) > 0 {
		o.signal()
	}
}

// chunk fills a report with a part of the snapshot; the last one has the sweep.
func (o *Outbox) chunk(r *linkv1.ReportUp) {
	r.Snapshot = o.snapshots.generation
	size, n := 0, 0
	for _, key := range o.snapshots.queue {
		if n >= maxValues || size >= most {
			break
		}
		n++
		size += o.add(r, key)
	}
	o.snapshots.queue = o.snapshots.queue[:copy(o.snapshots.queue, o.snapshots.queue[n:])]
	if len(o.snapshots.queue) == 0 {
		r.Sweep = &linkv1.Sweep{Snapshot: o.snapshots.generation}
		o.snapshots.sending = false
		if len(o.cmp.buckets) > 0 {
			r.Sweep.Bounded, r.Sweep.Buckets = true, o.cmp.buckets
			r.Sums = &linkv1.Sums{First: o.sums().First()} // to check whether both are equal now
			o.cmp.buckets = nil
		}
	}
	o.signal()
}

// add puts one value into a report.
func (o *Outbox) add(r *linkv1.ReportUp, key string) int {
	v, ok := o.values[key]
	if !ok {
		return 0
	}
	v.dirty = false
	if v.raw == nil {
		delete(o.values, key)
		if v.known != nil {
			r.Gone = append(r.Gone, goneOf(v))
		}
		return len(v.known)
	}
	v.known, v.sent = v.raw, v.leaf
	if err := decodeInto(r, v); err != nil {
		o.log.Error("report value not decoded", logkey.Application, v.app, logkey.Error, err)
	}
	return len(v.raw)
}

func decodeInto(r *linkv1.ReportUp, v *value) error {
	switch v.kind {
	case appValue:
		m := &linkv1.AppReport{}
		r.Apps = append(r.Apps, m)
		err := proto.Unmarshal(v.raw, m)
		m.Stamp = v.hash[:]
		return err
	case operationValue:
		m := &linkv1.OperationReport{}
		r.Operations = append(r.Operations, m)
		return proto.Unmarshal(v.raw, m)
	case managedValue, childValue:
	}
	m := &linkv1.Resource{}
	r.Resources = append(r.Resources, m)
	err := proto.Unmarshal(v.raw, m)
	m.Stamp = v.hash[:]
	return err
}

func goneOf(v *value) *linkv1.ResourceGone {
	var m linkv1.Resource
	if err := proto.Unmarshal(v.known, &m); err != nil || v.kind == childValue {
		return &linkv1.ResourceGone{AppId: v.app, Uid: v.uid}
	}
	return &linkv1.ResourceGone{AppId: v.app, Group: m.GetGroup(), Kind: m.GetKind(), Namespace: m.GetNamespace(), Name: m.GetName()}
}
