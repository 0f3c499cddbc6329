package link_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/capstan-cd/capstan/agent/link"
	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestStolen(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, prefix, cluster := w.token(r, r.addr, tenant())
	v, err := w.enrol(token)
	if err != nil {
		t.Fatal(err)
	}
	owner := w.run(v, nil)
	owner.sessions.awaitOpened(1)
	t.Run("SEC-K1 a stolen join token is of no use to another key, and the attempt is shown", func(t *testing.T) {
		thief := &vault{}
		_, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: thief, Cluster: facts{Fingerprint: "of the thief"}, Log: w.log.logger()})
		if fault.KindOf(err) != fault.Unknown || thief.id.Enrolled() {
			t.Errorf("Enroll() = %v", err)
		}
		if got := w.dir.stages(prefix); !slices.Equal(got, []string{"issued", "used"}) {
			t.Errorf("attempts %q", got)
		}
		if a := w.dir.attempted; len(a) != 1 || a[0].Address == "" || !strings.Contains(a[0].Message, "used before") {
			t.Errorf("the hub notes %+v", a)
		}
	})
	t.Run("SEC-K1 a stolen identity is of no use in another cluster, and the attempt is shown", func(t *testing.T) {
		stolen := *v.id
		a := w.run(&vault{id: &stolen}, func(c *link.Config) { c.Cluster = facts{Fingerprint: "of the thief"} })
		w.dir.await(func() bool { return len(w.dir.refusals[cluster]) > 0 })
		a.stop()
		if got := w.dir.refusals[cluster][0]; got.Stage != "fingerprint" {
			t.Errorf("the hub notes %+v", got)
		}
		if len(a.sessions.opened) > 0 {
			t.Error("the thief was let in")
		}
	})
	t.Run("FT-L9 neither is its owner, until an admin has decided", func(t *testing.T) {
		if reason := owner.sessions.awaitClosed(1); fault.KindOf(reason) != fault.Denied || !strings.Contains(reason.Error(), "used from another Kubernetes cluster too") {
			t.Errorf("the owner hears %v", reason)
		}
	})
}

func TestForeignAgent(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	victim := w.join(r, r.addr, tenant(), nil)
	victim.sessions.awaitOpened(1)
	cert, v, own := w.credential(r, tenant())
	cc := dialWith(t, r, cert, tunnel.Control())
	if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint}); err != nil {
		t.Fatal(err)
	}
	w.svc.row(string(victim.cluster), "app", "secret of the victim")
	t.Run("SEC-K3 an agent gets what its certificate names, whatever it claims", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := linkv1.NewDesiredClient(cc).Follow(ctx)
		if err != nil {
			t.Fatal(err)
		}
		last := w.svc.logs[string(victim.cluster)][0]
		start := &linkv1.FollowUp{Message: &linkv1.FollowUp_Start{Start: &linkv1.Cursor{Incarnation: incarnation, Chain: last.GetChain()}}}
		if err := stream.Send(start); err != nil {
			t.Fatal(err)
		}
		down, err := stream.Recv()
		if err != nil || down.GetBarrier().GetSeq() != 0 || len(down.GetBatch().GetRows()) > 0 {
			t.Errorf("it was sent %v, %v", down, err)
		}
	})
	t.Run("SEC-K10 what an agent reports counts as its own", func(t *testing.T) {
		stream, err := linkv1.NewObservedClient(cc).Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&linkv1.ReportUp{Epoch: "e", Seq: 1, Apps: []*linkv1.AppReport{{AppId: "app"}}})
		w.svc.await(func() bool { return w.svc.taken[string(own)][1] != nil })
		w.svc.mu.Lock()
		defer w.svc.mu.Unlock()
		if len(w.svc.taken[string(victim.cluster)]) > 0 {
			t.Error("it counts as another's")
		}
	})
	t.Run("SEC-K10 a giant report is refused", func(t *testing.T) {
		stream, err := linkv1.NewObservedClient(cc).Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&linkv1.ReportUp{Epoch: "e", Seq: 2, Apps: []*linkv1.AppReport{{Error: strings.Repeat("x", 2<<20)}}})
		for err == nil {
			_, err = stream.Recv()
		}
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestNoLateralMovement(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	other := w.join(r, r.addr, tenant(), nil)
	other.sessions.awaitOpened(1)
	cert, v, _ := w.credential(r, tenant())
	cc := dialWith(t, r, cert, tunnel.Control())
	if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint}); err != nil {
		t.Fatal(err)
	}
	t.Run("SEC-K6 the hub forwards no call to another agent", func(t *testing.T) {
		for _, d := range []grpc.ServiceDesc{linkv1.Ops_ServiceDesc, linkv1.Acts_ServiceDesc, linkv1.Live_ServiceDesc, linkv1.Remote_ServiceDesc, linkv1.Upgrades_ServiceDesc} {
			for _, m := range d.Methods {
				if err := call(t.Context(), cc, "/"+d.ServiceName+"/"+m.MethodName); fault.KindOf(err) != fault.Invalid {
					t.Errorf("%s = %v, want that the hub does not know it", m.MethodName, err)
				}
			}
		}
	})
	t.Run("SEC-K6 a stream of an agent reaches only the hub's services", func(t *testing.T) {
		s, err := dialThrough(t.Context(), t, r, r.addr, cert, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range []string{"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", "GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", "\x05\x01\x00"} {
			c, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, ask)
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if b, _ := io.ReadAll(io.LimitReader(c, 4096)); bytes.Contains(b, []byte("HTTP/1.1 2")) || bytes.HasPrefix(b, []byte("\x05\x00")) {
				t.Errorf("%q was answered %q", ask, b)
			}
			_ = c.Close()
		}
	})
	t.Run("SEC-K6 an agent's certificate is not accepted as a hub's", func(t *testing.T) {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{tunnel.ControlProtocol}, MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		var live sync.WaitGroup
		live.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.(*tls.Conn).HandshakeContext(t.Context())
				_ = c.Close()
			}
		})
		defer live.Wait()
		defer func() { _ = ln.Close() }()
		if _, err := dialThrough(t.Context(), t, r, ln.Addr().String(), cert, nil); fault.KindOf(err) != fault.Unknown {
			t.Errorf("Dial() = %v", err)
		}
	})
	t.Run("SEC-K6 no message of the hub carries an address to dial", func(t *testing.T) {
		seen := map[protoreflect.FullName]bool{}
		for _, m := range []protoreflect.ProtoMessage{
			&linkv1.HelloResponse{}, &linkv1.BeatReply{}, &linkv1.EnrollResponse{}, &linkv1.RenewResponse{}, &linkv1.FollowDown{}, &linkv1.ReportDown{}, &linkv1.FetchReply{},
		} {
			noAddress(t, m.ProtoReflect().Descriptor(), seen)
		}
	})
	t.Run("SEC-K6 an agent dials the addresses of its token and no other", func(t *testing.T) {
		var mu sync.Mutex
		dialled := map[string]bool{}
		a := w.join(r, r.addr, tenant(), func(c *link.Config) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				dialled[address] = true
				mu.Unlock()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		})
		a.sessions.awaitOpened(1)
		w.svc.row(string(a.cluster), "https://127.0.0.1:1/", "http://127.0.0.1:1/")
		w.svc.await(func() bool { return w.svc.acked[string(a.cluster)] == 1 })
		fetch(t, a, w.svc.store(100, 6<<10)) // opens the bulk lane
		r.Cut(a.cluster, fault.New(fault.Offline, "go to 127.0.0.1:1"))
		a.sessions.awaitOpened(2)
		mu.Lock()
		defer mu.Unlock()
		if len(dialled) != 1 || !dialled[r.addr] {
			t.Errorf("the agent dialled %v", dialled)
		}
	})
}

func noAddress(t *testing.T, m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) {
	t.Helper()
	if seen[m.FullName()] {
		return
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		for _, word := range []string{"address", "url", "host", "endpoint", "port", "redirect"} {
			if slices.Contains(strings.Split(string(f.Name()), "_"), word) {
				t.Errorf("%s may make an agent dial", f.FullName())
			}
		}
		if f.Message() != nil {
			noAddress(t, f.Message(), seen)
		}
	}
}

func TestTampering(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	cert, v, _ := w.credential(r, tenant())
	hello := func(c *tls.Certificate) error {
		s, err := dialThrough(t.Context(), t, r, r.addr, c, nil)
		if err != nil {
			return err
		}
		cc, err := s.Conn()
		if err != nil {
			return err
		}
		_, err = linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint})
		return err
	}
	t.Run("SEC-K7 a certificate with any byte changed is refused", func(t *testing.T) {
		for at := 0; at < len(cert.Certificate[0]); at += 7 {
			der := bytes.Clone(cert.Certificate[0])
			der[at] ^= 1
			if err := hello(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: cert.PrivateKey}); err == nil {
				t.Fatalf("with byte %d changed it was let in", at)
			}
		}
	})
	t.Run("SEC-K7 a valid certificate without its key is refused", func(t *testing.T) {
		other, _, _ := w.credential(r, tenant())
		if err := hello(&tls.Certificate{Certificate: cert.Certificate, PrivateKey: other.PrivateKey}); err == nil {
			t.Error("it was let in")
		}
	})
	t.Run("SEC-K7 a handshake that is replayed byte by byte is refused", func(t *testing.T) {
		var gotText recorder
		s, err := dialThrough(t.Context(), t, r, r.addr, cert, func(c *tunnel.DialConfig) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return recorded{conn, &gotText}, err
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		cc, err := s.Conn()
		if err == nil {
			_, err = linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.dir.await(func() bool { return w.dir.hellos > 0 })
		hellos := w.dir.hellos
		again, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = again.Close() }()
		_, _ = again.Write(gotText.all())
		_, _ = io.Copy(io.Discard, again) // until the hub closes it
		if w.dir.hellos != hellos {
			t.Error("the hub took it for an agent")
		}
	})
	for name, shift := range map[string]time.Duration{"slow": -24 * time.Hour, "fast": 24 * time.Hour} {
		t.Run("SEC-K7 an agent whose clock is a day "+name+" connects, and uses the hub's time", func(t *testing.T) {
			clock := shifted{shift}
			a := w.join(r, r.addr, tenant(), func(c *link.Config) { c.Clock = clock })
			a.sessions.awaitOpened(1)
			if off := time.Until(a.HubNow()).Abs(); off > time.Minute {
				t.Errorf("the agent is %s off the hub's time", off)
			}
		})
	}
	t.Run("SEC-K7 a hub whose clock is a day slow refuses certificates that are not valid yet, and logs that", func(t *testing.T) {
		late := newWorld(t)
		clock := runtest.NewClock(time.Now())
		late.hub = clock
		first := late.start()
		c, _, _ := late.credential(first, tenant())
		first.stop()
		late.hub = runtest.NewClock(time.Now().Add(-24 * time.Hour))
		second := late.start()
		_, err := linkv1.NewSessionClient(dialWith(t, second, c, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: "f"})
		if fault.KindOf(err) != fault.Unknown || !strings.Contains(fault.Sentence(err), "the hub's time is") {
			t.Errorf("Hello() = %q", fault.Sentence(err))
		}
	})
}

// shifted is a clock that is wrong.
type shifted struct{ by time.Duration }

func (s shifted) Now() time.Time { return time.Now().Add(s.by) }
func (s shifted) After(d time.Duration) (<-chan time.Time, func()) {
	return lifecycle.System{}.After(d)
}

// recorder keeps what was written.
type recorder struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *recorder) all() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.buf.Bytes())
}

type recorded struct {
	net.Conn
	to *recorder
}

func (c recorded) Write(b []byte) (int, error) {
	c.to.mu.Lock()
	c.to.buf.Write(b)
	c.to.mu.Unlock()
	return c.Conn.Write(b)
}
