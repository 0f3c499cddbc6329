package report

import (
	"crypto/sha256"
	"github.com/capstan-cd/capstan/shared/logkey"
	"time"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
)

const (
	comparisonWait = 3 * time.Second // how long changes wait for a comparison that cannot begin yet
	mostTimes      = 3               // consecutive comparisons of one snapshot; remaining differences wait for the next one
)

// A comparison finds what the hub has stored differently, so that a snapshot
// contains only that. Until it has started, and while it waits for a reply,
// values wait: equal ones need not be sent.
type comparison struct {
	able    bool      // the hub can compare
	since   time.Time // time of the first value that waits for the first comparison; zero: none waits
	begun   bool      // one has started since the process started
	asked   bool      // a reply is awaited
	times   int       // comparisons of this snapshot
	wanted  []uint32  // buckets of the first level whose details the hub has requested
	buckets []uint32  // buckets that differ and are being sent
}

// Compares sets whether the hub compares hashes. It is called at each session,
// before anything is sent.
func (o *Outbox) Compares(able bool) {
	o.mu.Lock()
	if o.cmp.able != able && (o.cmp.asked || o.snapshots.sending) {
		o.snapshots.due, o.snapshots.sending = true, false // begin again, by the method of this hub
		o.cmp.asked, o.cmp.wanted = false, nil
	}
	o.cmp.able = able
	o.mu.Unlock()
	o.signal()
}

// Compare processes the hub's reply to the agent's hashes.
func (o *Outbox) Compare(c *linkv1.Compare) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.signal()
	if !o.cmp.able || c.GetSnapshot() != o.snapshots.generation {
		return
	}
	switch {
	case len(c.GetSecond()) > 0:
		o.cmp.asked = false
		o.differ(c.GetSecond())
	case len(c.GetFirst()) > 0:
		if !o.cmp.asked { // the check at the end of a snapshot found more
			if o.cmp.times++; o.cmp.times >= mostTimes {
				o.log.Warn("hub and agent still differ after a snapshot; the next one continues", logkey.Buckets, len(c.GetFirst()))
				return
			}
			o.cmp.asked = true
		}
		o.cmp.wanted = c.GetFirst()
	default:
		o.cmp.asked, o.cmp.wanted = false, nil // all is equal
	}
}

// differ starts to send the values of the buckets that differ.
func (o *Outbox) differ(of []uint32) {
	wanted := make(map[uint16]bool, len(of))
	for _, b := range of {
		wanted[uint16(b)] = true
	}
	o.cmp.buckets, o.snapshots.sending = of, true
	o.snapshots.queue = o.snapshots.queue[:0]
	for key, v := range o.values {
		if v.raw != nil && v.kind != operationValue && wanted[v.bucket] {
			o.snapshots.queue = append(o.snapshots.queue, key)
		}
	}
}

// beginComparison starts a comparison of all values. From here on every value
// counts as sent: either the hub has it, or its bucket will differ.
func (o *Outbox) beginComparison(r *linkv1.ReportUp) {
	o.cmp.asked, o.cmp.begun, o.cmp.times, o.cmp.wanted = true, true, 0, nil
	rest := o.dirty[:0]
	for _, key := range o.dirty {
		v := o.values[key]
		if v == nil || v.kind == operationValue || v.raw == nil {
			rest = append(rest, key)
			continue
		}
		v.dirty = false
	}
	o.dirty = rest
	for _, v := range o.values {
		if v.kind != operationValue && v.raw != nil {
			v.known, v.sent = v.raw, v.leaf
		}
	}
	r.Snapshot = o.snapshots.generation
	r.Sums = &linkv1.Sums{First: o.sums().First()}
}

// answerComparison sends the second level of the buckets that the hub has
// requested.
func (o *Outbox) answerComparison(r *linkv1.ReportUp) {
	sums := o.sums()
	r.Snapshot, r.Sums = o.snapshots.generation, &linkv1.Sums{}
	for _, b := range o.cmp.wanted {
		index, values := sums.Second(uint8(b))
		r.Sums.Second = append(r.Sums.Second, &linkv1.BucketSums{Bucket: b, Index: index, Sums: values})
	}
	o.cmp.wanted = nil
}

// sums are the hashes of the values that were reported to the hub.
func (o *Outbox) sums() buckethash.Sums {
	out := buckethash.Sums{}
	for _, v := range o.values {
		if v.sent != 0 {
			out.Add(v.bucket, v.sent)
		}
	}
	return out
}

// mustWait reports whether values must wait for a comparison.
func (o *Outbox) mustWait(now time.Time) bool {
	switch {
	case !o.cmp.able:
		return false
	case o.cmp.asked:
		return true
	case o.cmp.begun:
		return false
	case o.cmp.since.IsZero():
		return true
	}
	return now.Sub(o.cmp.since) < comparisonWait
}

// stamp computes a value's hash, its bucket and its part of the bucket's sum.
// The time of a comparison is not part of the hash: an equal result has an
// equal hash.
func (v *value) stamp(m proto.Message, raw []byte) {
	if v.kind == operationValue {
		return
	}
	key := buckethash.Application(v.app)
	switch m := m.(type) {
	case *linkv1.AppReport:
		if timeless := proto.CloneOf(m); timeless.GetComparedUnixNano() != 0 {
			timeless.ComparedUnixNano = 0
			if raw2, err := (proto.MarshalOptions{Deterministic: true}).Marshal(timeless); err == nil {
				raw = raw2
			}
		}
	case *linkv1.Resource:
		key = buckethash.Resource(m.GetAppId(), m.GetGroup(), m.GetKind(), m.GetNamespace(), m.GetName())
	}
	sum := sha256.Sum256(raw)
	v.hash = [8]byte(sum[:8])
	v.bucket, v.leaf = buckethash.Of(key), buckethash.Leaf(key, v.hash[:])
}
