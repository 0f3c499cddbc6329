package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/compress"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// A sim is one agent with the agent's own link code and, instead of a
// cluster, memory: it keeps the chain and the leaves of its log, checks both,
// and reports that everything is applied at once.
type sim struct {
	fleet *fleet
	name  string
	local net.Addr // each enrols from an address of its own
	epoch string

	mu       sync.Mutex
	identity *link.Identity
	cursor   *linkv1.Cursor
	bodies   map[string][]byte // of the newest states that are large enough to be packed against
	leaves   map[string][32]byte
	apps     map[string]*linkv1.AppReport
	out      []*linkv1.ReportUp
	made     uint64
	snapshot uint64
	wrong    error // the hub sent what does not follow
	conn     net.Conn

	ready     chan struct{} // capacity 1: out has something
	client    *link.Client
	reports   link.Reports  // nil: the sim itself
	rows      atomic.Uint64 // rows taken, ever
	rowAt     atomic.Int64  // when the first of the newest rows was taken
	dials     atomic.Int64  // connections tried, ever
	opened    atomic.Int64  // sessions, ever
	connected atomic.Bool
	confirmed atomic.Uint64 // seq of the newest barrier that was answered in this session
	at        atomic.Int64  // when that was
	ackedSeq  atomic.Uint64 // of reports
	in, sent  atomic.Int64  // bytes on the wire, TLS included

	held       map[string]bool             // digests of bodies that came
	pending    map[uint64]time.Time        // reports with events, until they are stored
	took       []time.Duration             // how long that was
	digests    map[string]bool             // of the newest states, to ask for again
	through    string                      // where to dial instead of the hub; empty: the hub
	heartbeats uint32                      // seconds between heartbeats; 0: what the hub says
	greeting   func(*linkv1.HelloResponse) // nil: nothing
}

func newSim(f *fleet, n int) *sim {
	return &sim{
		fleet: f, name: fmt.Sprintf("sim-%05d", n), epoch: fmt.Sprintf("epoch-%05d", n),
		local:  &net.TCPAddr{IP: net.IPv4(127, 1, byte(n/200), byte(n%200+1))},
		cursor: &linkv1.Cursor{}, leaves: map[string][32]byte{}, bodies: map[string][]byte{}, apps: map[string]*linkv1.AppReport{}, ready: make(chan struct{}, 1),
		held: map[string]bool{}, pending: map[uint64]time.Time{}, digests: map[string]bool{},
	}
}

// Load and Save are the Vault.
func (s *sim) Load(context.Context) (link.Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity == nil {
		return link.Identity{}, fault.New(fault.Missing, "nothing was saved")
	}
	return *s.identity, nil
}

func (s *sim) Save(_ context.Context, id link.Identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = &id
	return nil
}

// Facts are those of a small cluster.
func (s *sim) Facts(context.Context) (link.Facts, error) {
	return link.Facts{Fingerprint: "uid-of-" + s.name, KubeVersion: "v1.35.4", APIVersions: s.fleet.apis, Readyz: "ok"}, nil
}

// dial counts bytes, and remembers the connection so that it can be cut.
func (s *sim) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.dials.Add(1)
	if s.through != "" {
		address = s.through
	}
	c, err := (&net.Dialer{LocalAddr: s.local}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	return &countedConn{Conn: c, sim: s}, nil
}

type countedConn struct {
	net.Conn
	sim *sim
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.sim.in.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sim.sent.Add(int64(n))
	return n, err
}

// cut ends the connection as a failing network does.
func (s *sim) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
		_ = t.Close()
	}
}

func (s *sim) enrol(ctx context.Context, token string) error {
	_, err := link.Enroll(ctx, token, link.EnrolConfig{Vault: s, Cluster: s, Log: s.fleet.log, Dial: s.dial, Version: version})
	return err
}

// version is what simulated agents say they are.
const version = "v0.1.0"

// run keeps the agent attached until ctx ends.
func (s *sim) run(ctx context.Context) error {
	reports := s.reports
	if reports == nil {
		reports = s
	}
	c, err := link.New(link.Config{
		Vault: s, Cluster: s, Desired: s, Reports: reports, Sessions: s, Load: func() link.Load { return link.Load{Leader: true} },
		Epoch: s.epoch, Instance: "state-of-" + s.name, Log: s.fleet.log, Version: version, Dial: s.dial, Watchdog: -1,
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.client = c
	s.mu.Unlock()
	return c.Run(ctx)
}

// Opened, Revoked and Closed are the Sessions.
func (s *sim) Opened(_ context.Context, h *linkv1.HelloResponse) error {
	if s.heartbeats > 0 {
		h.HeartbeatSeconds = s.heartbeats
	}
	if s.greeting != nil {
		s.greeting(h)
	}
	s.confirmed.Store(0)
	s.opened.Add(1)
	s.connected.Store(true)
	return nil
}

func (s *sim) Revoked([]*linkv1.Revoked) {}

func (s *sim) Closed(error) {
	s.connected.Store(false)
	s.confirmed.Store(0)
}

// Cursor, Take, Root, Rewound and Answer are the Desired.
func (s *sim) Cursor() *linkv1.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := proto.CloneOf(s.cursor)
	at.Packs = true
	return at
}

func (s *sim) StoreBatch(_ context.Context, b *linkv1.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.GetReset_() {
		clear(s.leaves)
		s.cursor = &linkv1.Cursor{Incarnation: b.GetIncarnation()}
	}
	if err := inventory.Unpack(b, func(app string) []byte { return s.bodies[app] }); err != nil {
		s.wrong = err
		return err
	}
	for _, blob := range b.GetBlobs() {
		s.held[string(blob.GetDigest())] = true
	}
	up := &linkv1.ReportUp{}
	s.rowAt.Store(time.Now().UnixNano())
	for _, r := range b.GetRows() {
		if r.GetSeq() <= s.cursor.GetSeq() {
			continue
		}
		if err := s.follows(b.GetIncarnation(), r); err != nil {
			s.wrong = err
			return err
		}
		s.cursor = &linkv1.Cursor{Incarnation: b.GetIncarnation(), Seq: r.GetSeq(), Chain: r.GetChain(), Proof: b.GetProof()}
		s.rows.Add(1)
		if err := s.apply(r, up); err != nil {
			s.wrong = err
			return err
		}
	}
	if len(up.Apps)+len(up.Operations) == 0 {
		return nil
	}
	if missing := s.missing(up.Apps); len(missing) > 0 {
		go s.fetch(missing, up) // the log goes on meanwhile, as it does in the agent
		return nil
	}
	s.put(up)
	return nil
}

// missing returns the digests of states whose bodies did not come along; s.mu is
// held.
func (s *sim) missing(of []*linkv1.AppReport) (out [][]byte) {
	if len(of) == 0 {
		return nil
	}
	for d := range s.digests {
		if !s.held[d] {
			out = append(out, []byte(d))
		}
	}
	return out
}

// fetch gets bodies and reports afterwards. It ends with the client.
func (s *sim) fetch(digests [][]byte, up *linkv1.ReportUp) {
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	_, err := c.Fetch(s.fleet.life, digests, func(*linkv1.Blob) error { return nil })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.fleet.life.Err() == nil {
			s.wrong = err
		}
		return
	}
	for _, d := range digests {
		s.held[string(d)] = true
	}
	s.put(up)
}

// follows checks the chain where no rows were left out.
func (s *sim) follows(incarnation string, r *linkv1.Row) error {
	if r.GetSeq() != s.cursor.GetSeq()+1 || r.GetKind() == linkv1.RowKind_ROW_KIND_UNSPECIFIED {
		return nil
	}
	prev := s.cursor.GetChain()
	if len(prev) == 0 {
		prev = hashchain.First(incarnation)
	}
	if !bytes.Equal(r.GetChain(), hashchain.Next(prev, r.GetSeq(), int32(r.GetKind()), r.GetAppId(), r.GetBody())) {
		return fmt.Errorf("%s: row %d does not follow row %d", s.name, r.GetSeq(), s.cursor.GetSeq())
	}
	return nil
}

// apply acts as if everything was in the cluster at once.
func (s *sim) apply(r *linkv1.Row, up *linkv1.ReportUp) error {
	now := time.Now().UnixNano()
	switch r.GetKind() {
	case linkv1.RowKind_ROW_KIND_STATE:
		var st linkv1.AppState
		if err := proto.Unmarshal(r.GetBody(), &st); err != nil {
			return err
		}
		s.leaves[r.GetAppId()] = hashchain.Leaf(r.GetAppId(), r.GetBody())
		delete(s.bodies, r.GetAppId())
		if len(r.GetBody()) >= compress.Least {
			s.bodies[r.GetAppId()] = r.GetBody()
		}
		a := &linkv1.AppReport{
			AppId: r.GetAppId(), Target: st.GetTarget().GetId(), Generation: st.GetGeneration(), Sync: "Synced", Health: "Healthy", ComparedUnixNano: now,
		}
		s.apps[r.GetAppId()] = a
		up.Apps = append(up.Apps, a)
		clear(s.digests)
		for i, o := range st.GetTarget().GetObjects() {
			s.digests[string(o.GetDigest())] = true
			up.Resources = append(up.Resources, resource(s.name, r.GetAppId(), i, o))
		}
	case linkv1.RowKind_ROW_KIND_OPERATION:
		var op linkv1.Operation
		if err := proto.Unmarshal(r.GetBody(), &op); err != nil {
			return err
		}
		up.Operations = append(up.Operations, &linkv1.OperationReport{
			OperationId: op.GetId(), AppId: r.GetAppId(), Phase: "Succeeded", Message: "successfully synced",
			StartedUnixNano: now, FinishedUnixNano: now, HealthyUnixNano: now,
		})
	case linkv1.RowKind_ROW_KIND_FORGET:
		delete(s.leaves, r.GetAppId())
		delete(s.apps, r.GetAppId())
	case linkv1.RowKind_ROW_KIND_UNSPECIFIED, linkv1.RowKind_ROW_KIND_TERMINATE:
	}
	return nil
}

func resource(cluster, app string, i int, o *linkv1.ObjectRef) *linkv1.Resource {
	return &linkv1.Resource{
		AppId: app, Uid: fmt.Sprintf("%s-%s-%d", cluster, app, i), Group: o.GetGroup(), Version: o.GetVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), Managed: true, Sync: "Synced", Health: "Healthy",
	}
}

func (s *sim) Root() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	root := hashchain.Root(maps.Clone(s.leaves))
	s.at.Store(time.Now().UnixNano())
	s.confirmed.Store(s.cursor.GetSeq())
	return root
}

func (s *sim) Rewound(reason string) {
	if reason == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = fmt.Errorf("%s: the hub was rewound: %s", s.name, reason)
}

// Respond returns no answer: what was rewound is wrong already, and the others
// ask for nothing.
func (s *sim) Respond(context.Context, *linkv1.FollowDown) (*linkv1.FollowUp, error) { return nil, nil }

// put queues a report; s.mu is held.
func (s *sim) put(up *linkv1.ReportUp) uint64 {
	s.made++
	up.Epoch, up.Seq = s.epoch, s.made
	s.out = append(s.out, up)
	select {
	case s.ready <- struct{}{}:
	default:
	}
	return s.made
}

// event reports that objects of an application changed, and gives the number
// of the report.
func (s *sim) event(objects, round int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for app := range s.apps {
		up := &linkv1.ReportUp{}
		for i := range objects {
			up.Resources = append(up.Resources, &linkv1.Resource{
				AppId: app, Uid: fmt.Sprintf("%s-pod-%d", s.name, i), Version: "v1", Kind: "Pod", Namespace: "web", Name: fmt.Sprintf("web-%d", i),
				Health: "Healthy", Message: restarted(round),
			})
		}
		n := s.put(up)
		s.pending[n] = time.Now()
		return n
	}
	return 0
}

// Next, Acked, Resnapshot, Compare and Grant are the Reports.
func (s *sim) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	for {
		s.mu.Lock()
		if len(s.out) > 0 {
			up := s.out[0]
			s.out = s.out[1:]
			s.mu.Unlock()
			return up, nil
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ready:
		}
	}
}

func (s *sim) Acked(_ string, seq, _ uint64) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ackedSeq.Store(max(s.ackedSeq.Load(), seq)) // a new stream begins with 0
	for n, at := range s.pending {
		if n <= seq {
			s.took = append(s.took, now.Sub(at))
			delete(s.pending, n)
		}
	}
}

func (s *sim) Compare(*linkv1.Compare) {}
func (s *sim) Grant(uint64)            {}

func (s *sim) Resnapshot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot++
	up := &linkv1.ReportUp{Snapshot: s.snapshot, Sweep: &linkv1.Sweep{Snapshot: s.snapshot}}
	for _, a := range s.apps {
		up.Apps = append(up.Apps, a)
	}
	s.put(up)
}

// A counting handler keeps no text, only how often something went wrong.
type countingLog struct {
	slog.Handler
	warnings *atomic.Int64
}

func (l countingLog) Enabled(_ context.Context, level slog.Level) bool {
	if level >= slog.LevelWarn {
		l.warnings.Add(1)
	}
	return false
}

func (l countingLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l countingLog) WithGroup(string) slog.Handler      { return l }
