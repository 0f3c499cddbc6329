package link_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// services are what dispatch and observe are to the link, in memory. They
// outlive hubs, as a database does.
type services struct {
	linkv1.UnimplementedDesiredServer
	linkv1.UnimplementedObservedServer
	linkv1.UnimplementedBlobsServer

	mu          sync.Mutex
	changed     *sync.Cond
	logs        map[string][]*linkv1.Row // by cluster, from the certificate
	acked       map[string]uint64
	receipts    map[string]uint64 // seq of the newest barrier with equal roots
	taken       map[string]map[uint64]*linkv1.ReportUp
	credit      uint64
	rewound     string
	blobs       map[string][]byte
	unsupported map[string][]uint64 // rows that agents named
	lanes       []string            // that fetches came in on
}

func newServices() *services {
	s := &services{
		logs: map[string][]*linkv1.Row{}, acked: map[string]uint64{}, receipts: map[string]uint64{},
		taken: map[string]map[uint64]*linkv1.ReportUp{}, credit: 64 << 10, blobs: map[string][]byte{},
		unsupported: map[string][]uint64{},
	}
	s.changed = sync.NewCond(&s.mu)
	return s
}

const incarnation = "incarnation-1"

// row appends to a cluster's log.
func (s *services) row(cluster, app, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[cluster]
	prev := hashchain.First(incarnation)
	if len(log) > 0 {
		prev = log[len(log)-1].GetChain()
	}
	r := &linkv1.Row{Seq: uint64(len(log) + 1), Kind: linkv1.RowKind_ROW_KIND_STATE, AppId: app, Body: []byte(body)}
	r.Chain = hashchain.Next(prev, r.GetSeq(), int32(r.GetKind()), app, r.GetBody())
	s.logs[cluster] = append(log, r)
	s.changed.Broadcast()
}

func rootOf(rows []*linkv1.Row) []byte {
	leaves := map[string][32]byte{}
	for _, r := range rows {
		leaves[r.GetAppId()] = hashchain.Leaf(r.GetAppId(), r.GetBody())
	}
	return hashchain.Root(leaves)
}

// Follow serves the log of the cluster that the certificate names.
func (s *services) Follow(stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) error {
	peer, _ := tunnel.PeerFrom(stream.Context())
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	wake := context.AfterFunc(stream.Context(), func() { s.mu.Lock(); defer s.mu.Unlock(); s.changed.Broadcast() })
	defer wake()
	var acks sync.WaitGroup
	acks.Go(func() { s.acks(peer.Cluster, stream) })
	defer acks.Wait()
	return s.push(peer.Cluster, first.GetStart().GetSeq(), stream)
}

func (s *services) push(cluster string, seq uint64, stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) error {
	for first := true; ; first = false {
		s.mu.Lock()
		for !first && uint64(len(s.logs[cluster])) <= seq && stream.Context().Err() == nil && s.rewound == "" {
			s.changed.Wait()
		}
		rows := s.logs[cluster][min(seq, uint64(len(s.logs[cluster]))):]
		all, rewound := s.logs[cluster], s.rewound
		s.mu.Unlock()
		if err := stream.Context().Err(); err != nil {
			return err
		}
		if rewound != "" {
			if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Rewound{Rewound: &linkv1.Rewound{Reason: rewound}}}); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		for len(rows) > 0 {
			n := min(7, len(rows))
			b := &linkv1.Batch{Incarnation: incarnation, Rows: rows[:n]}
			if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: b}}); err != nil {
				return err
			}
			seq, rows = rows[n-1].GetSeq(), rows[n:]
		}
		bar := &linkv1.Barrier{Seq: seq, Root: rootOf(all[:min(seq, uint64(len(all)))])}
		if err := stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Barrier{Barrier: bar}}); err != nil {
			return err
		}
	}
}

func (s *services) acks(cluster string, stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) {
	for {
		up, err := stream.Recv()
		if err != nil {
			return
		}
		a := up.GetAck()
		s.mu.Lock()
		s.unsupported[cluster] = append(s.unsupported[cluster], a.GetUnsupported()...)
		s.acked[cluster] = max(s.acked[cluster], a.GetSeq())
		if b := a.GetBarrier(); b > 0 && b == a.GetSeq() && b <= uint64(len(s.logs[cluster])) && bytes.Equal(a.GetRoot(), rootOf(s.logs[cluster][:b])) {
			s.receipts[cluster] = max(s.receipts[cluster], b)
		}
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

// Report stores each report and acknowledges what is there without a gap.
func (s *services) Report(stream grpc.BidiStreamingServer[linkv1.ReportUp, linkv1.ReportDown]) error {
	peer, _ := tunnel.PeerFrom(stream.Context())
	if err := stream.Send(&linkv1.ReportDown{Acked: s.contiguous(peer.Cluster), Credit: s.credit}); err != nil {
		return err
	}
	for {
		up, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.taken[peer.Cluster] == nil {
			s.taken[peer.Cluster] = map[uint64]*linkv1.ReportUp{}
		}
		s.taken[peer.Cluster][up.GetSeq()] = up
		s.changed.Broadcast()
		s.mu.Unlock()
		if err := stream.Send(&linkv1.ReportDown{Acked: s.contiguous(peer.Cluster), Credit: s.credit}); err != nil {
			return err
		}
	}
}

func (s *services) contiguous(cluster string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n uint64
	for s.taken[cluster][n+1] != nil {
		n++
	}
	return n
}

// Fetch gives what there is, in small messages.
func (s *services) Fetch(req *linkv1.FetchRequest, stream grpc.ServerStreamingServer[linkv1.FetchReply]) error {
	session, _ := tunnel.SessionFrom(stream.Context())
	s.mu.Lock()
	s.lanes = append(s.lanes, session.Lane().Name)
	s.mu.Unlock()
	for _, d := range req.GetDigests() {
		s.mu.Lock()
		sealed, ok := s.blobs[string(d)]
		s.mu.Unlock()
		reply := &linkv1.FetchReply{Blobs: []*linkv1.Blob{{Digest: d, Sealed: sealed}}}
		if !ok {
			reply = &linkv1.FetchReply{Missing: [][]byte{d}}
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

func (s *services) await(cond func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond() {
		s.changed.Wait()
	}
}

// replica is one running hub.
type replica struct {
	*fleet.Server
	world     *world
	authority *fleet.Authority
	addr      string
	split     *tunnel.Splitter
	stop      func()
}

// world is what the hubs of a test share.
type world struct {
	t    testing.TB
	dir  *directory
	svc  *services
	log  *logs
	hub  lifecycle.Clock
	cfg  func(*fleet.Config)
	host string // that hubs listen at; empty: 127.0.0.1
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{t: t, dir: newDirectory(), svc: newServices(), log: &logs{}, hub: lifecycle.System{}}
}

// start runs a hub until the test ends, or stop is called.
func (w *world) start() *replica {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	host := cmp.Or(w.host, "127.0.0.1")
	a, err := fleet.OpenAuthority(ctx, w.dir, w.hub, []string{host})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := fleet.Config{
		Authority: a, Enrolments: w.dir, Revocations: w.dir, Presence: w.dir, Refusals: w.dir, Keys: w.dir, Log: w.log.logger(), Clock: w.hub, Replica: "replica-1",
		Control: func(r grpc.ServiceRegistrar) {
			linkv1.RegisterDesiredServer(r, w.svc)
			linkv1.RegisterObservedServer(r, w.svc)
			linkv1.RegisterHubObjectsServer(r, linkv1.UnimplementedHubObjectsServer{}) // what it does is shown elsewhere; here, who gets to it
		},
		Bulk: func(r grpc.ServiceRegistrar) { linkv1.RegisterBlobsServer(r, w.svc) },
	}
	if w.cfg != nil {
		w.cfg(&cfg)
	}
	s, err := fleet.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		w.t.Fatal(err)
	}
	split := tunnel.Split(ln, tunnel.SplitConfig{Link: a.TLS(), Log: w.log.logger(), HTTP: &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Certificate() },
	}})
	done := make(chan error, 1)
	go func() {
		done <- lifecycle.Run(ctx,
			lifecycle.Part{Name: "port", Run: split.Run},
			lifecycle.Part{Name: "web", Run: func(ctx context.Context) error { return serveWeb(ctx, split.HTTP(), split.WebSocket()) }},
			lifecycle.Part{Name: "fleet", Run: func(ctx context.Context) error { return s.Serve(ctx, split.Link()) }})
	}()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the hub ended with: %v", err)
			}
		})
	}
	w.t.Cleanup(stop)
	return &replica{Server: s, world: w, authority: a, addr: ln.Addr().String(), split: split, stop: stop}
}

// serveWeb serves HTTP until ctx ends.
func serveWeb(ctx context.Context, ln net.Listener, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle(tunnel.WebSocketPath, h)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// inviter makes tokens that lead to an address with the hub's key.
func (r *replica) inviter(t testing.TB, addr string) fleet.Inviter {
	t.Helper()
	pin, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Inviter{Addresses: []string{addr}, Pin: pin}
}

// token makes a join token for a new cluster of a tenant.
func (w *world) token(r *replica, addr string, tenant hub.TenantID) (token, prefix string, c hub.ClusterID) {
	w.t.Helper()
	c = hub.NewID[hub.ClusterID]()
	_ = w.dir.do(func() error { w.dir.members[c] = hub.Member{ClusterName: "demo"}; return nil })
	token, prefix = w.dir.invite(w.t, r.inviter(w.t, addr), tenant, c, w.hub.Now().Add(time.Hour))
	return token, prefix, c
}

// logs keeps everything that is logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
