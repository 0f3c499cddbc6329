package replicas_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/replicas"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// table is the database.
type table struct {
	mu     sync.Mutex
	alive  map[string]hub.Replica
	places map[hub.ClusterID]hub.AgentHome
	fence  int64
}

func newTable() *table {
	return &table{alive: map[string]hub.Replica{}, places: map[hub.ClusterID]hub.AgentHome{}}
}

func (s *table) Beat(_ context.Context, r hub.Replica, _ time.Duration) ([]hub.Replica, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[r.ID] = r
	var out []hub.Replica
	for _, a := range s.alive {
		out = append(out, a)
	}
	return out, nil
}

func (s *table) Leave(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, id)
	return nil
}

func (s *table) Attachment(_ context.Context, tenant hub.TenantID, c hub.ClusterID) (hub.AgentHome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.places[c]; ok && p.Tenant == tenant && p.Session != "" {
		return p, nil
	}
	return hub.AgentHome{}, fault.New(fault.Offline, "nowhere")
}

func (s *table) Attachments(_ context.Context, after int64) ([]hub.AgentHome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []hub.AgentHome
	for _, p := range s.places {
		if p.Fence > after {
			out = append(out, p)
		}
	}
	return out, nil
}

func (s *table) put(c hub.ClusterID, replica, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence++
	s.places[c] = hub.AgentHome{Tenant: tenant, Cluster: c, Replica: replica, Session: session, Fence: s.fence}
}

const (
	tenant  = hub.TenantID("t1")
	cluster = hub.ClusterID("c1")
)

// vault keeps the private authority of all replicas of a test.
type vault struct{ secret []byte }

func (v *vault) Authority(context.Context) ([]byte, error) {
	if v.secret == nil {
		return nil, fault.New(fault.Missing, "none")
	}
	return v.secret, nil
}
func (v *vault) PutAuthority(_ context.Context, b []byte) error { v.secret = b; return nil }

// ops is an agent.
type ops struct {
	linkv1.UnimplementedOpsServer
	name string
}

func (o ops) Get(ctx context.Context, r *linkv1.GetRequest) (*linkv1.GetResponse, error) {
	switch r.GetName() {
	case "missing":
		return nil, tunnel.Status(fault.With(fault.New(fault.Missing, "there is no such object"), "ConfigMap x", "look again"))
	case "slow":
		<-ctx.Done()
		return nil, tunnel.Status(ctx.Err())
	case "large":
		return &linkv1.GetResponse{Json: []byte(strings.Repeat("x", 8<<20))}, nil
	}
	return &linkv1.GetResponse{Json: []byte(o.name)}, nil
}

// acts is what an agent does with actions.
type acts struct {
	linkv1.UnimplementedActsServer
	ops
	asked chan string // ids of what it was asked to run
	broke func()      // ends the connection while it runs
}

func (a *acts) ListActions(context.Context, *linkv1.ListActionsRequest) (*linkv1.ListActionsResponse, error) {
	return &linkv1.ListActionsResponse{Actions: []*linkv1.OfferedAction{{Name: a.name}}}, nil
}

func (a *acts) RunAction(ctx context.Context, r *linkv1.RunActionRequest) (*linkv1.RunActionResponse, error) {
	a.asked <- r.GetId()
	if r.GetAction() == "break" {
		go a.broke()
		<-ctx.Done()
	}
	return &linkv1.RunActionResponse{}, nil
}

// one is a replica of a test.
type one struct {
	*replicas.Replicas
	t     *testing.T
	id    string
	notes chan replicas.Notice
	asked chan string
	broke func()

	mu    sync.Mutex
	held  map[hub.ClusterID]grpc.ClientConnInterface
	names map[hub.ClusterID]string
}

func (o *one) Holds(c hub.ClusterID) (grpc.ClientConnInterface, hub.TenantID, string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	conn, ok := o.held[c]
	return conn, tenant, o.names[c], ok
}

// attach lets an agent attach to the replica; detach lets it go without a
// word to anybody.
func (o *one) attach(c hub.ClusterID, session string) {
	t := o.t
	ln := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	linkv1.RegisterOpsServer(server, ops{name: o.id})
	linkv1.RegisterActsServer(server, &acts{ops: ops{name: o.id}, asked: o.asked, broke: func() { o.broke() }})
	go func() { _ = server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop() })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[c], o.names[c] = conn, session
}

func (o *one) detach(c hub.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, c)
}

type world struct {
	t     *testing.T
	store *table
	auth  *fleet.Authority
	root  *x509.Certificate
}

func newWorld(t *testing.T) *world {
	t.Helper()
	auth, err := fleet.OpenAuthority(t.Context(), &vault{}, lifecycle.System{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(auth.Root())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, newTable(), auth, root}
}

// start starts a replica; what it gives ends it at once, as a crash would.
func (w *world) start(id string) (*one, context.CancelFunc) {
	w.t.Helper()
	o := &one{t: w.t, id: id, notes: make(chan replicas.Notice, 100), asked: make(chan string, 10), held: map[hub.ClusterID]grpc.ClientConnInterface{}, names: map[hub.ClusterID]string{}}
	certificate, err := w.auth.Replica(replicas.URI(id))
	if err != nil {
		w.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	server, client := replicas.TLS(w.root, certificate)
	o.Replicas = replicas.New(replicas.Config{
		Self: hub.Replica{ID: id, Address: ln.Addr().String()}, Store: w.store, Agents: o, Heard: func(h replicas.Notice) { o.notes <- h },
		Server: server, Client: client, Lease: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = o.Run(ctx) })
	wait.Go(func() { _ = o.Serve(ctx, ln) })
	stop := sync.OnceFunc(func() { cancel(); wait.Wait() })
	w.t.Cleanup(stop)
	return o, stop
}

// know waits until replicas know of each other.
func know(t *testing.T, all ...*one) {
	t.Helper()
	for _, o := range all {
		eventually(t, func() bool { return len(o.Among()) == len(all) })
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatal("it did not come to pass")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// receive waits for a hint. One that does not come in time may be lost, and is
// given again.
func (o *one) receive(again func()) replicas.Notice {
	for {
		select {
		case h := <-o.notes:
			return h
		case <-time.After(10 * time.Second):
			again()
		}
	}
}

func recent() hub.Cluster {
	now := time.Now()
	return hub.Cluster{ID: cluster, Tenant: tenant, LastSeen: &now}
}

// get asks the agent through a replica.
func get(ctx context.Context, o *one, c hub.Cluster, name string) (string, error) {
	conn, err := o.Conn(ctx, c)
	if err != nil {
		return "", err
	}
	reply, err := linkv1.NewOpsClient(conn).Get(ctx, &linkv1.GetRequest{Name: name}, grpc.MaxCallRecvMsgSize(32<<20))
	return string(reply.GetJson()), err
}

func TestRoute(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("a")
	b, _ := w.start("b")
	know(t, a, b)

	t.Run("FT-H5 an agent of the other replica is one hop away", func(t *testing.T) {
		a.attach(cluster, "s1")
		w.store.put(cluster, "a", "s1")
		for _, o := range []*one{a, b} {
			if got, err := get(t.Context(), o, recent(), "x"); got != "a" || err != nil {
				t.Errorf("through %s: %q, %v", o.id, got, err)
			}
		}
	})
	t.Run("the agent's answer is returned unchanged, large ones too", func(t *testing.T) {
		_, err := get(t.Context(), b, recent(), "missing")
		if f, ok := fault.As(err); !ok || f.Kind != fault.Missing || f.Object != "ConfigMap x" || f.Fix != "look again" {
			t.Errorf("%v", err)
		}
		if got, err := get(t.Context(), b, recent(), "large"); len(got) != 8<<20 || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
	t.Run("INV-9 the caller's deadline ends the call on both hops", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := get(ctx, b, recent(), "slow"); fault.KindOf(err) != fault.Offline && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	t.Run("ISO-1 the agent of another tenant is not found", func(t *testing.T) {
		c := recent()
		c.Tenant = "t2"
		c.LastSeen = nil
		for _, o := range []*one{a, b} {
			if got, err := get(t.Context(), o, c, "x"); fault.KindOf(err) != fault.Offline {
				t.Errorf("through %s: %q, %v", o.id, got, err)
			}
		}
	})
	t.Run("FT-H5 the registry names one replica and the agent is at the other", func(t *testing.T) {
		a.detach(cluster)
		b.attach(cluster, "s2")
		// b holds it and knows; a believes that it is its own.
		if got, err := get(t.Context(), b, recent(), "x"); got != "b" || err != nil {
			t.Errorf("through b: %q, %v", got, err)
		}
		got := make(chan string, 1)
		go func() {
			v, err := get(t.Context(), a, recent(), "x")
			if err != nil {
				v = err.Error()
			}
			got <- v
		}()
		w.store.put(cluster, "b", "s2") // late
		if v := <-got; v != "b" {
			t.Errorf("through a: %s", v)
		}
	})
	t.Run("FT-H5 a call waits for an agent that is coming, and not for one that was away", func(t *testing.T) {
		b.detach(cluster)
		w.store.put(cluster, "b", "")
		gone := recent()
		past := time.Now().Add(-time.Hour)
		gone.LastSeen = &past
		if _, err := get(t.Context(), a, gone, "x"); fault.KindOf(err) != fault.Offline {
			t.Errorf("an agent that is away: %v", err)
		}
		got := make(chan string, 1)
		go func() {
			v, _ := get(t.Context(), a, recent(), "x")
			got <- v
		}()
		b.attach(cluster, "s3")
		w.store.put(cluster, "b", "s3")
		if v := <-got; v != "b" {
			t.Errorf("answer %q", v)
		}
	})
	t.Run("the second replica never forwards to a third", func(t *testing.T) {
		// The row names a, which does not hold it; b does. a must not ask b
		// on behalf of c.
		w.store.put(cluster, "a", "s4")
		c, _ := w.start("c")
		know(t, a, b, c)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		if got, err := get(ctx, c, recent(), "x"); err == nil {
			t.Errorf("a passed the call on: %q", got)
		}
		w.store.put(cluster, "b", "s3")
		if got, err := get(t.Context(), c, recent(), "x"); got != "b" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestReplicaIsKilled(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("a")
	b, kill := w.start("b")
	know(t, a, b)
	b.attach(cluster, "s1")
	w.store.put(cluster, "b", "s1")
	if got, err := get(t.Context(), a, recent(), "x"); got != "b" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	kill()
	w.store.mu.Lock()
	w.store.alive["b"] = hub.Replica{ID: "b", Address: "127.0.0.1:1"} // it left without a word
	w.store.mu.Unlock()
	t.Run("FT-H5 an agent that is not back yet is an error that may be tried again", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := get(ctx, a, recent(), "x"); fault.KindOf(err) != fault.Offline {
			t.Errorf("%v", err)
		}
	})
	t.Run("FT-H5 the call follows the agent to its new replica", func(t *testing.T) {
		got := make(chan string, 1)
		go func() {
			v, err := get(t.Context(), a, recent(), "x")
			if err != nil {
				v = err.Error()
			}
			got <- v
		}()
		a.attach(cluster, "s2")
		w.store.put(cluster, "a", "s2")
		if v := <-got; v != "a" {
			t.Errorf("answer %q", v)
		}
	})
}

func TestActions(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("a")
	b, kill := w.start("b")
	know(t, a, b)
	b.broke = kill
	b.attach(cluster, "s1")
	w.store.put(cluster, "b", "s1")
	act := func(id, action string) error {
		conn, err := a.Conn(t.Context(), recent())
		if err == nil {
			_, err = linkv1.NewActsClient(conn).RunAction(t.Context(), &linkv1.RunActionRequest{Id: id, Action: action})
		}
		return err
	}
	t.Run("ACT-07 actions of an agent of the other replica are one hop away", func(t *testing.T) {
		conn, err := a.Conn(t.Context(), recent())
		if err != nil {
			t.Fatal(err)
		}
		list, err := linkv1.NewActsClient(conn).ListActions(t.Context(), &linkv1.ListActionsRequest{})
		if err != nil || len(list.GetActions()) != 1 || list.GetActions()[0].GetName() != "b" {
			t.Errorf("%v, %v", list, err)
		}
		if err := act("1", "restart"); err != nil || <-b.asked != "1" {
			t.Errorf("%v", err)
		}
	})
	t.Run("FT-H5 an action whose replica ends is not sent through another one", func(t *testing.T) {
		a.attach(cluster, "s2") // where a call would go that may be repeated
		if err := act("2", "break"); err == nil || <-b.asked != "2" {
			t.Errorf("%v", err)
		}
		if len(a.asked) > 0 {
			t.Error("it was asked for twice")
		}
	})
}

func TestNotifications(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("a")
	b, _ := w.start("b")
	c, _ := w.start("c")
	know(t, a, b, c)
	t.Run("a change is sent to all subscribers, each object once", func(t *testing.T) {
		for range 50 {
			a.Changed(tenant)
		}
		sendOne := func() {
			a.Changed(tenant)
			a.Due(hub.WorkFetch)
			a.Revoked()
			a.Credentials(tenant)
		}
		sendOne()
		for _, o := range []*one{b, c} {
			var tenants, work, credentials int
			for revoked := false; !revoked || tenants == 0 || work == 0 || credentials == 0; {
				h := o.receive(sendOne)
				tenants, work, revoked = tenants+len(h.Tenants), work+len(h.Work), revoked || h.Revoked
				credentials += len(h.Credentials)
			}
			if tenants > 5 {
				t.Errorf("replica %s was told %d times", o.id, tenants)
			}
		}
	})
	t.Run("the replica with its agent is notified of a log that grew", func(t *testing.T) {
		w.store.put(cluster, "c", "s1")
		c.attach(cluster, "s1")
		if _, err := get(t.Context(), a, recent(), "x"); err != nil {
			t.Fatal(err)
		}
		sendOne := func() { a.Wake(cluster) }
		sendOne()
		h := c.receive(sendOne)
		for len(h.Clusters) == 0 { // what the others were told before
			h = c.receive(sendOne)
		}
		if !slices.Equal(h.Clusters, []hub.ClusterID{cluster}) {
			t.Errorf("%+v", h)
		}
		select {
		case h := <-b.notes:
			if len(h.Clusters) > 0 {
				t.Errorf("the other one was told too: %+v", h)
			}
		default:
		}
	})
	t.Run("a replica that stops is left out of the work", func(t *testing.T) {
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return slices.Equal(a.Among(), []string{"a", "c"}) })
		if !b.Others() {
			t.Error("it knows of no other that could take over")
		}
		eventually(t, func() bool { return slices.Equal(b.Among(), []string{"a", "c"}) }) // one that did not get to beat knows of nobody
	})
}
