// Package report is the agent's outbox: the newest value of everything that a
// hub should hear, sent until the hub has it. It never looks at a cluster,
// never blocks whoever puts something in, and never queues two values of one
// thing: a fast object is coalesced. The engine and the tree put values in,
// the link takes reports out. A value that is equal to the last one sent
// costs nothing.
package report

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/run"
)

const (
	quiet         = 50 * time.Millisecond  // least time between two reports under load
	pressing      = 5 * time.Millisecond   // the same for transitions
	crowded       = 100 * time.Millisecond // the same for both while many come in a row: each report is a transaction of the hub
	crowd         = 4                      // reports in a row after which it is crowded
	maxValues     = 256                    // resources in one report
	defaultCredit = 1 << 20                // bytes outstanding before the hub has said anything
	most          = 256 << 10              // bytes of values in one report
)

// An Outbox gathers what changes and gives it out as reports.
type Outbox struct {
	epoch     string
	clock     run.Clock
	log       *slog.Logger
	delivered func(operation string)
	wake      chan struct{}

	mu          sync.Mutex
	values      map[string]*value
	dirty       []string // keys of values, oldest change first
	closed      []*linkv1.TombstoneClosed
	pressing    bool // a transition waits
	inARow      int  // reports that followed each other closely
	last        time.Time
	seq         uint64
	credit      uint64
	outstanding uint64
	sent        []sent // not acknowledged, in order of seq
	ready       bool   // the first complete picture is there
	snapshot    uint64 // generation of the newest snapshot
	owed        bool   // a snapshot must begin
	queue       []string
	sweeping    bool // the snapshot is under way
}

// A value is the newest of one thing.
type value struct {
	kind  valueKind
	app   string
	uid   string // of a child
	raw   []byte // encoded; nil: gone
	known []byte // what was sent last; nil: nothing
	dirty bool
	over  bool // an operation that ended
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
	operations []string // that ended
}

// New makes an outbox. Delivered is called, from the link's goroutine, when
// the hub has the result of an operation.
func New(epoch string, clock run.Clock, delivered func(operation string), log *slog.Logger) *Outbox {
	return &Outbox{
		epoch: epoch, clock: clock, delivered: delivered, log: log, wake: make(chan struct{}, 1),
		values: map[string]*value{}, credit: defaultCredit, owed: true,
	}
}

// Ready says that the picture is complete for the first time, so that a
// snapshot may begin. Until then only single values are sent.
func (o *Outbox) Ready() {
	o.mu.Lock()
	o.ready = true
	o.mu.Unlock()
	o.hint()
}

// Resnapshot begins again with everything.
func (o *Outbox) Resnapshot() {
	o.mu.Lock()
	o.owed = true
	o.mu.Unlock()
	o.hint()
}

// Backlog is how many values wait to be sent.
func (o *Outbox) Backlog() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint32(len(o.dirty) + len(o.queue)) //nolint:gosec // far below 2^32
}

// App puts the newest report of an application in.
func (o *Outbox) App(r *linkv1.AppReport) {
	o.put("a\x00"+r.GetAppId(), value{kind: appValue, app: r.GetAppId()}, r, true)
}

// Resource puts the newest state of a managed object or a child in.
func (o *Outbox) Resource(r *linkv1.Resource) {
	v := value{kind: managedValue, app: r.GetAppId()}
	if !r.GetManaged() {
		v.kind, v.uid = childValue, r.GetUid()
	}
	o.put(resourceKey(r.GetManaged(), r.GetAppId(), r.GetUid(), r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName()), v, r, false)
}

// Operation puts the newest state of an operation in.
func (o *Outbox) Operation(r *linkv1.OperationReport) {
	v := value{kind: operationValue, app: r.GetAppId(), uid: r.GetOperationId(), over: r.GetFinishedUnixNano() != 0}
	o.put("o\x00"+r.GetOperationId(), v, r, v.over)
}

// Gone says that a managed object is none any more, or that a child went.
func (o *Outbox) Gone(r *linkv1.Resource) {
	o.mu.Lock()
	o.gone(resourceKey(r.GetManaged(), r.GetAppId(), r.GetUid(), r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName()))
	o.mu.Unlock()
	o.hint()
}

// Closed says that the object of a tombstone is gone, or was never ours.
func (o *Outbox) Closed(t *linkv1.TombstoneClosed) {
	o.mu.Lock()
	o.closed = append(o.closed, t)
	o.pressing = true
	o.mu.Unlock()
	o.hint()
}

// Forget takes back everything of an application.
func (o *Outbox) Forget(app string) {
	o.mu.Lock()
	for key, v := range o.values {
		if v.app != app {
			continue
		}
		if v.kind == managedValue || v.kind == childValue {
			o.gone(key)
			continue
		}
		if v.kind == appValue {
			delete(o.values, key)
		}
	}
	o.mu.Unlock()
	o.hint()
}

func resourceKey(managed bool, app, uid, group, kind, namespace, name string) string {
	if !managed {
		return "c\x00" + uid
	}
	return "m\x00" + app + "\x00" + group + "\x00" + kind + "\x00" + namespace + "\x00" + name
}

func (o *Outbox) put(key string, v value, m proto.Message, pressing bool) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		// Only text that is no UTF-8 comes here; the rest must still flow.
		o.log.Error("report value not encoded", logkey.Application, v.app, logkey.Error, err) //nolint:sloglint // no context reaches here
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
	o.soil(key, held)
	o.pressing = o.pressing || pressing
	o.hint()
}

func (o *Outbox) gone(key string) {
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
	}
}

func (o *Outbox) hint() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Next waits for something to say and for the hub's credit, and gives it. One
// goroutine may call it at a time.
func (o *Outbox) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	for {
		r, wait := o.take()
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

// take makes a report, or says how long to wait for one; 0: until a hint.
func (o *Outbox) take() (*linkv1.ReportUp, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.outstanding >= o.credit {
		return nil, 0
	}
	o.begin()
	waits := len(o.dirty) > 0 || len(o.closed) > 0
	if !waits && !o.sweeping {
		return nil, 0
	}
	pause := quiet
	if o.pressing {
		pause = pressing
	}
	if o.inARow >= crowd {
		pause = crowded
	}
	now := o.clock.Now()
	if since := now.Sub(o.last); since < pause && !o.sweeping {
		return nil, pause - since
	}
	r := &linkv1.ReportUp{Epoch: o.epoch}
	if waits {
		o.delta(r)
	} else {
		o.chunk(r)
	}
	o.seq++
	r.Seq = o.seq
	if now.Sub(o.last) < 2*crowded {
		o.inARow++
	} else {
		o.inARow = 0
	}
	o.last = now
	o.remember(r)
	return r, 0
}

// begin starts a snapshot if one is owed.
func (o *Outbox) begin() {
	if !o.owed || !o.ready {
		return
	}
	o.owed, o.sweeping = false, true
	o.snapshot++
	o.queue = o.queue[:0]
	for key, v := range o.values {
		if v.raw != nil {
			o.queue = append(o.queue, key)
		}
	}
}

// delta fills a report with what changed.
func (o *Outbox) delta(r *linkv1.ReportUp) {
	r.Closed, o.closed, o.pressing = o.closed, nil, false
	size, n := 0, 0
	for _, key := range o.dirty {
		if n >= maxValues || size >= most {
			break
		}
		n++
		size += o.add(r, key)
	}
	o.dirty = o.dirty[:copy(o.dirty, o.dirty[n:])]
	if len(o.dirty) > 0 {
		o.hint()
	}
}

// chunk fills a report with a part of the snapshot; the last one sweeps.
func (o *Outbox) chunk(r *linkv1.ReportUp) {
	r.Snapshot = o.snapshot
	size, n := 0, 0
	for _, key := range o.queue {
		if n >= maxValues || size >= most {
			break
		}
		n++
		size += o.add(r, key)
	}
	o.queue = o.queue[:copy(o.queue, o.queue[n:])]
	if len(o.queue) == 0 {
		r.Sweep = &linkv1.Sweep{Snapshot: o.snapshot}
		o.sweeping = false
	}
	o.hint()
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
	v.known = v.raw
	if err := decodeInto(r, v); err != nil {
		o.log.Error("report value not decoded", logkey.Application, v.app, logkey.Error, err) //nolint:sloglint // no context reaches here
	}
	return len(v.raw)
}

func decodeInto(r *linkv1.ReportUp, v *value) error {
	switch v.kind {
	case appValue:
		m := &linkv1.AppReport{}
		r.Apps = append(r.Apps, m)
		return proto.Unmarshal(v.raw, m)
	case operationValue:
		m := &linkv1.OperationReport{}
		r.Operations = append(r.Operations, m)
		return proto.Unmarshal(v.raw, m)
	case managedValue, childValue:
	}
	m := &linkv1.Resource{}
	r.Resources = append(r.Resources, m)
	return proto.Unmarshal(v.raw, m)
}

func goneOf(v *value) *linkv1.ResourceGone {
	var m linkv1.Resource
	if err := proto.Unmarshal(v.known, &m); err != nil || v.kind == childValue {
		return &linkv1.ResourceGone{AppId: v.app, Uid: v.uid}
	}
	return &linkv1.ResourceGone{AppId: v.app, Group: m.GetGroup(), Kind: m.GetKind(), Namespace: m.GetNamespace(), Name: m.GetName()}
}

// remember keeps what an acknowledgement of the report will mean.
func (o *Outbox) remember(r *linkv1.ReportUp) {
	s := sent{seq: r.GetSeq(), size: uint64(proto.Size(r))} //nolint:gosec // a size is never negative
	for _, op := range r.GetOperations() {
		if op.GetFinishedUnixNano() != 0 {
			s.operations = append(s.operations, op.GetOperationId())
		}
	}
	o.outstanding += s.size
	o.sent = append(o.sent, s)
}

// Acked says that the hub has stored all reports up to seq, and how many
// bytes may be outstanding from now on; 0: as many as before.
func (o *Outbox) Acked(epoch string, seq, credit uint64) {
	if epoch != o.epoch {
		return
	}
	o.mu.Lock()
	if credit > 0 {
		o.credit = credit
	}
	n := 0
	var over []string
	for n < len(o.sent) && o.sent[n].seq <= seq {
		o.outstanding -= o.sent[n].size
		over = append(over, o.sent[n].operations...)
		n++
	}
	o.sent = o.sent[:copy(o.sent, o.sent[n:])]
	for _, id := range over {
		if v := o.values["o\x00"+id]; v != nil && v.over && !v.dirty {
			delete(o.values, "o\x00"+id)
		}
	}
	o.mu.Unlock()
	for _, id := range over {
		o.delivered(id)
	}
	o.hint()
}
