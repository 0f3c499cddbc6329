package link

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func TestIdentityHidesKey(t *testing.T) {
	t.Parallel()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{AgentID: "a", Key: key}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "id", id)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "id", id)
	_, _ = fmt.Fprintf(&log, "%v %+v %#v %s", id, id, id, &id)
	stored, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var as struct{ Key string }
	if err := json.Unmarshal(stored, &as); err != nil || as.Key == "" {
		t.Fatalf("the vault cannot store the key: %v", err)
	}
	if strings.Contains(log.String(), as.Key) || strings.Contains(log.String(), fmt.Sprint(key)) {
		t.Error("SEC-C3 the key is shown")
	}
}

func TestIdentityDamaged(t *testing.T) {
	t.Parallel()
	key, _ := newKey()
	cases := map[string]Identity{
		"Nothing":  {},
		"NoChain":  {AgentID: "a", Key: key},
		"BadKey":   {AgentID: "a", Key: []byte("s3cret"), Chain: [][]byte{{1}}},
		"BadChain": {AgentID: "a", Key: key, Chain: [][]byte{{1}}},
	}
	for name, id := range cases {
		if _, err := id.Certificate(); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: Certificate() = %v", name, err)
		}
	}
	if _, err := (Identity{}).PinnedKeys(); err == nil {
		t.Error("SEC-K4 an identity without a pin would take any hub")
	}
	if _, err := (Identity{Pins: []string{"short"}}).PinnedKeys(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a damaged pin = %v", err)
	}
}

func TestRenewAt(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c := &x509.Certificate{NotBefore: start, NotAfter: start.Add(8 * 24 * time.Hour)}
	for random, want := range map[float64]time.Duration{0: 72 * time.Hour, 0.5: 96 * time.Hour, 1: 120 * time.Hour} {
		if got := renewAt(c, random).Sub(start); got != want {
			t.Errorf("SEC-K5 renewed after %s, want %s", got, want)
		}
	}
}

func report(seq uint64, size int) *linkv1.ReportUp {
	return &linkv1.ReportUp{Epoch: "e", Seq: seq, Apps: []*linkv1.AppReport{{Error: strings.Repeat("x", size)}}}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbox()
		var made, acked uint64
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "make") {
				made++
				o.put(report(made, rapid.IntRange(0, 100000).Draw(t, "size")))
			} else {
				seq := rapid.Uint64Range(0, made).Draw(t, "ack") // late and repeated ones too
				o.acked(seq, rapid.Uint64Range(0, 200000).Draw(t, "credit"))
				acked = max(acked, seq)
			}
			var bytes uint64
			for i, m := range o.all() {
				if m.GetSeq() != acked+uint64(i)+1 {
					t.Fatalf("FT-L6 report %d is at place %d after an acknowledgement of %d", m.GetSeq(), i, acked)
				}
				bytes += size(m)
			}
			if n := uint64(len(o.all())); n != made-acked || bytes != o.bytes {
				t.Fatalf("FT-L6 %d reports wait, want %d; %d bytes, want %d", n, made-acked, o.bytes, bytes)
			}
			if o.full() && len(o.all()) == 0 {
				t.Fatal("INV-13 nothing is outstanding and nothing may be sent")
			}
		}
	})
}

func TestOutboxCredit(t *testing.T) {
	t.Parallel()
	o := newOutbox()
	o.acked(0, 1)
	if o.full() {
		t.Error("an empty outbox is full")
	}
	o.put(report(1, 100))
	if !o.full() {
		t.Error("INV-9 credit does not bound what is outstanding")
	}
	o.acked(0, 0)
	if !o.full() {
		t.Error("no credit means as much as before, not any")
	}
	o.acked(1, 0)
	if o.full() {
		t.Error("an acknowledgement makes no room")
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	c := &Client{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	small := report(1, 1000)
	if c.fit(t.Context(), small) != small {
		t.Error("a small report was changed")
	}
	large := report(7, 2<<20)
	large.Snapshot, large.Sweep = 3, &linkv1.Sweep{Snapshot: 3}
	got := c.fit(t.Context(), large)
	if got.GetSeq() != 7 || got.GetEpoch() != "e" || len(got.GetApps()) != 0 || got.GetSweep() != nil {
		t.Errorf("INV-6 a report that is too large became %v; with its sweep the hub would forget what it was not told", got)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	c := &Client{cfg: Config{Random: func() float64 { return 0.999999 }}}
	wait := func() *lifecycle.Backoff {
		return &lifecycle.Backoff{First: firstWait, Max: mostWait, Rand: c.cfg.Random}
	}
	b := wait()
	if d := c.pause(b, fault.New(fault.Offline, "away")); d > 250*time.Millisecond {
		t.Errorf("FT-L11 the first try comes after %s", d)
	}
	for range 20 {
		if d := c.pause(b, fault.New(fault.Offline, "away")); d > time.Minute {
			t.Errorf("a try comes after %s", d)
		}
	}
	for _, k := range []fault.Kind{fault.Conflict, fault.Denied, fault.Unknown} {
		if d := c.pause(wait(), fault.New(k, "no")); d < 15*time.Second || d > 45*time.Second {
			t.Errorf("FT-L8 an agent that is refused (%s) comes back after %s", k, d)
		}
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	for given, want := range map[uint32]time.Duration{0: 10 * time.Second, 1: time.Second, 10: 10 * time.Second, 1 << 31: 5 * time.Minute} {
		if got := interval(&linkv1.HelloResponse{HeartbeatSeconds: given}); got != want {
			t.Errorf("interval(%d) = %s, want %s", given, got, want)
		}
	}
}
