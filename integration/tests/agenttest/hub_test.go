package agenttest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// waitLimit is the most that a test waits for something that must happen. It
// costs nothing when all is well, so it is long enough for any machine.
const waitLimit = 3 * time.Minute

// fakeHub is the hub's real end of the link with everything behind it in
// memory. It can be stopped and started; the log stays.
type fakeHub struct {
	linkv1.UnimplementedDesiredServer
	linkv1.UnimplementedObservedServer
	linkv1.UnimplementedBlobsServer

	t       *testing.T
	dir     *directory
	tenant  hub.TenantID
	cluster hub.ClusterID
	addr    string
	token   string
	log     *slog.Logger
	server  *fleet.Server
	halt    func()

	mu          sync.Mutex
	changed     chan struct{} // closed and made anew at each change
	incarnation string
	rows        []*linkv1.Row
	withhold    bool // blobs are not sent with rows, only when asked for
	deaf        bool // reports are not acknowledged
	timeout     time.Duration
	blobs       map[string][]byte
	apps        map[string]*linkv1.AppReport
	resources   map[string]*linkv1.Resource
	operations  map[string]*linkv1.OperationReport
	finals      map[string]int // final results that came, by operation
	closed      []string
	receipts    int
	ack         uint64 // newest row that the agent has stored
	offers      int    // resets that were sent
	snapshots   int
	epochs      map[string]uint64
}

func newHub(t *testing.T) *fakeHub {
	t.Helper()
	h := &fakeHub{
		t: t, dir: &directory{invited: map[[32]byte]*hub.Invitation{}, member: hub.Member{ClusterName: "demo"}},
		tenant: hub.NewID[hub.TenantID](), cluster: hub.NewID[hub.ClusterID](), log: quiet(t),
		changed: make(chan struct{}), incarnation: "one", blobs: map[string][]byte{}, apps: map[string]*linkv1.AppReport{},
		resources: map[string]*linkv1.Resource{}, operations: map[string]*linkv1.OperationReport{}, finals: map[string]int{},
		epochs: map[string]uint64{}, timeout: waitLimit,
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	h.addr = fmt.Sprintf("127.0.0.1:%d", port)
	h.start()
	return h
}

// start serves, on the same port as before.
func (h *fakeHub) start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	authority, err := fleet.OpenAuthority(ctx, h.dir, lifecycle.System{}, []string{"127.0.0.1"})
	if err != nil {
		h.t.Fatal(err)
	}
	server, err := fleet.New(fleet.Config{
		Authority: authority, Enrolments: h.dir, Revocations: h.dir, Presence: h.dir, Refusals: h.dir, Keys: h.dir, Log: h.log, Replica: "r1",
		Control: func(r grpc.ServiceRegistrar) {
			linkv1.RegisterDesiredServer(r, h)
			linkv1.RegisterObservedServer(r, h)
		},
		Bulk: func(r grpc.ServiceRegistrar) { linkv1.RegisterBlobsServer(r, h) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.addr, h.server = ln.Addr().String(), server
	split := tunnel.Split(ln, tunnel.SplitConfig{Link: authority.TLS(), Log: h.log})
	done := make(chan error, 1)
	go func() {
		done <- lifecycle.Run(ctx, lifecycle.Part{Name: "port", Run: split.Run},
			lifecycle.Part{Name: "fleet", Run: func(ctx context.Context) error { return server.Serve(ctx, split.Link()) }})
	}()
	var once sync.Once
	h.halt = func() { once.Do(func() { cancel(); <-done }) }
	h.t.Cleanup(h.halt)
	if h.token == "" {
		h.invite(authority)
	}
}

func (h *fakeHub) invite(a *fleet.Authority) {
	pin, err := a.Pin()
	if err != nil {
		h.t.Fatal(err)
	}
	token, prefix, hash, err := fleet.Inviter{Addresses: []string{h.addr}, Pin: pin}.Invite()
	if err != nil {
		h.t.Fatal(err)
	}
	h.token = token
	h.dir.invited[hash] = &hub.Invitation{ClusterName: "demo", Enrolment: hub.Enrolment{
		ID: hub.NewID[hub.EnrolmentID](), Tenant: h.tenant, Cluster: h.cluster, Prefix: prefix, ExpiresAt: time.Now().Add(time.Hour),
	}}
}

// change runs fn under the lock and wakes those who wait.
func (h *fakeHub) change(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until cond holds, and says what it was if it never does.
func (h *fakeHub) await(what string, cond func() bool) {
	h.t.Helper()
	limit := time.NewTimer(h.timeout)
	defer limit.Stop()
	for {
		h.mu.Lock()
		ok, changed := cond(), h.changed
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			h.mu.Lock()
			defer h.mu.Unlock()
			h.t.Fatalf("never happened: %s\n%s", what, h.describe())
		}
	}
}

// describe shows what the hub knows.
func (h *fakeHub) describe() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(h.apps)) {
		fmt.Fprintln(&b, "app", protojson.Format(h.apps[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(h.operations)) {
		fmt.Fprintln(&b, "operation", protojson.Format(h.operations[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(h.resources)) {
		r := h.resources[id]
		fmt.Fprintln(&b, "resource", id, r.GetSync(), r.GetHealth(), r.GetDiff(), r.GetMessage())
	}
	return b.String()
}

// append adds rows to the log, all in one batch.
func (h *fakeHub) append(rows ...*linkv1.Row) {
	h.change(func() {
		for _, r := range rows {
			prev := hashchain.First(h.incarnation)
			if n := len(h.rows); n > 0 {
				prev = h.rows[n-1].GetChain()
			}
			r.Seq = uint64(len(h.rows) + 1)
			r.Chain = hashchain.Next(prev, r.GetSeq(), int32(r.GetKind()), r.GetAppId(), r.GetBody())
			h.rows = append(h.rows, r)
		}
	})
}

func row(kind linkv1.RowKind, app string, body proto.Message) *linkv1.Row {
	raw, err := proto.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &linkv1.Row{Kind: kind, AppId: app, Body: raw}
}

// Follow serves the log as the real one does: rows after the cursor, or all
// latest rows after a reset, then barriers at rest.
func (h *fakeHub) Follow(stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	go h.acks(stream)
	cursor := first.GetStart()
	h.mu.Lock()
	other := cursor.GetIncarnation() != "" && cursor.GetIncarnation() != h.incarnation
	h.mu.Unlock()
	if other {
		down := &linkv1.Rewound{Reason: "the hub's log is of another incarnation"}
		if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Rewound{Rewound: down}}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	reset := cursor.GetIncarnation() == ""
	seq := cursor.GetSeq()
	for {
		h.mu.Lock()
		rows, changed, incarnation := slices.Clone(h.rows), h.changed, h.incarnation
		h.mu.Unlock()
		if seq < uint64(len(rows)) || reset {
			b := &linkv1.Batch{Incarnation: incarnation, Reset_: reset, Rows: rows[min(seq, uint64(len(rows))):], Blobs: h.sendable()}
			if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: b}}); err != nil {
				return err
			}
			if reset {
				h.change(func() { h.offers++ })
			}
			seq, reset = uint64(len(rows)), false
			bar := &linkv1.Barrier{Seq: seq, Root: rootOf(rows)}
			if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Barrier{Barrier: bar}}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (h *fakeHub) sendable() []*linkv1.Blob {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.withhold {
		return nil
	}
	var out []*linkv1.Blob
	for d, sealed := range h.blobs {
		out = append(out, &linkv1.Blob{Digest: []byte(d), Sealed: sealed})
	}
	return out
}

func rootOf(rows []*linkv1.Row) []byte {
	leaves := map[string][32]byte{}
	for _, r := range rows {
		switch r.GetKind() {
		case linkv1.RowKind_ROW_KIND_STATE:
			leaves[r.GetAppId()] = hashchain.Leaf(r.GetAppId(), r.GetBody())
		case linkv1.RowKind_ROW_KIND_FORGET:
			delete(leaves, r.GetAppId())
		}
	}
	return hashchain.Root(leaves)
}

func (h *fakeHub) acks(stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) {
	for {
		up, err := stream.Recv()
		if err != nil {
			return
		}
		h.change(func() {
			h.ack = max(h.ack, up.GetAck().GetSeq())
			// One that was on its way when the log was taken away names rows that are not there.
			if b := up.GetAck().GetBarrier(); b > 0 && b <= uint64(len(h.rows)) && bytes.Equal(up.GetAck().GetRoot(), rootOf(h.rows[:b])) {
				h.receipts++
			}
		})
	}
}

// Fetch gives objects.
func (h *fakeHub) Fetch(req *linkv1.FetchRequest, stream grpc.ServerStreamingServer[linkv1.FetchReply]) error {
	reply := &linkv1.FetchReply{}
	h.mu.Lock()
	for _, d := range req.GetDigests() {
		if sealed, ok := h.blobs[string(d)]; ok {
			reply.Blobs = append(reply.Blobs, &linkv1.Blob{Digest: d, Sealed: sealed})
		} else {
			reply.Missing = append(reply.Missing, d)
		}
	}
	h.mu.Unlock()
	return stream.Send(reply)
}

// Report keeps the newest of everything, as the real hub does.
func (h *fakeHub) Report(stream grpc.BidiStreamingServer[linkv1.ReportUp, linkv1.ReportDown]) error {
	for {
		up, err := stream.Recv()
		if err != nil {
			return nil
		}
		deaf := false
		h.change(func() {
			if deaf = h.deaf; !deaf && up.GetSeq() > h.epochs[up.GetEpoch()] {
				h.epochs[up.GetEpoch()] = up.GetSeq()
				h.fold(up)
			}
		})
		if deaf {
			continue
		}
		if err := stream.Send(&linkv1.ReportDown{Acked: up.GetSeq(), Credit: 1 << 20}); err != nil {
			return err
		}
	}
}

func (h *fakeHub) fold(up *linkv1.ReportUp) {
	for _, a := range up.GetApps() {
		h.apps[a.GetAppId()] = a
	}
	for _, r := range up.GetResources() {
		h.resources[nameOf(r.GetKind(), r.GetNamespace(), r.GetName())] = r
	}
	for _, g := range up.GetGone() {
		maps.DeleteFunc(h.resources, func(_ string, r *linkv1.Resource) bool {
			if r.GetAppId() != g.GetAppId() {
				return false
			}
			if g.GetUid() != "" {
				return r.GetUid() == g.GetUid()
			}
			return r.GetKind() == g.GetKind() && r.GetNamespace() == g.GetNamespace() && r.GetName() == g.GetName()
		})
	}
	for _, o := range up.GetOperations() {
		if old := h.operations[o.GetOperationId()]; old.GetFinishedUnixNano() != 0 && o.GetFinishedUnixNano() == 0 {
			h.t.Errorf("operation %s went from %s back to %s", o.GetOperationId(), old.GetPhase(), o.GetPhase())
		}
		h.operations[o.GetOperationId()] = o
		if o.GetFinishedUnixNano() != 0 {
			h.finals[o.GetOperationId()]++
		}
	}
	for _, c := range up.GetClosed() {
		h.closed = append(h.closed, nameOf(c.GetKind(), c.GetNamespace(), c.GetName()))
	}
	if up.GetSweep() != nil {
		h.snapshots++
	}
}

func nameOf(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// quiet logs to the test, and only if it fails does anybody see it.
func quiet(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writer struct{ t *testing.T }

func (w writer) Write(b []byte) (int, error) {
	defer func() { _ = recover() }() // the test may have ended
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
