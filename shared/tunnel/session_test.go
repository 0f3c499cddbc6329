package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func somebody() tunnel.Peer {
	return tunnel.Peer{Tenant: "t1", Cluster: "c1", AgentID: "a1", Serial: "ff"}
}

// service answers Get with a size, and Heartbeat with echoes; Renew waits.
type service struct {
	linkv1.UnimplementedOpsServer
	linkv1.UnimplementedSessionServer
	bytes  int
	failed error
	peers  chan tunnel.Peer
	ended  chan struct{}
}

func (s *service) Get(ctx context.Context, _ *linkv1.GetRequest) (*linkv1.GetResponse, error) {
	if s.peers != nil {
		p, _ := tunnel.PeerFrom(ctx)
		s.peers <- p
	}
	return &linkv1.GetResponse{Json: make([]byte, s.bytes)}, s.failed
}

func (s *service) Heartbeat(stream grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply]) error {
	if s.ended != nil {
		defer close(s.ended)
	}
	for {
		b, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&linkv1.BeatReply{Number: b.GetNumber()}); err != nil {
			return err
		}
	}
}

// serve answers on one end of a session.
func serve(t testing.TB, session *tunnel.Session, impl *service) *tunnel.Server {
	t.Helper()
	srv := tunnel.NewServer(tunnel.ServerConfig{Lane: session.Lane(), Log: quiet()})
	linkv1.RegisterOpsServer(srv, impl)
	linkv1.RegisterSessionServer(srv, impl)
	background(t, srv.Serve)
	background(t, func(ctx context.Context) error {
		_ = srv.Attach(ctx, session)
		return nil
	})
	return srv
}

func ops(t testing.TB, s *tunnel.Session) linkv1.OpsClient {
	t.Helper()
	c, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	return linkv1.NewOpsClient(c)
}

func TestCallsInBothDirections(t *testing.T) {
	agent, hub := pair(t, tunnel.Control(), somebody())
	peers := make(chan tunnel.Peer, 1)
	serve(t, hub, &service{bytes: 1, peers: peers})
	serve(t, agent, &service{bytes: 2})

	up, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{})
	if err != nil || len(up.GetJson()) != 1 {
		t.Errorf("agent to hub: %d bytes, %v", len(up.GetJson()), err)
	}
	if p := <-peers; p != somebody() {
		t.Errorf("the hub sees %+v, want %+v", p, somebody())
	}
	down, err := ops(t, hub).Get(t.Context(), &linkv1.GetRequest{})
	if err != nil || len(down.GetJson()) != 2 {
		t.Errorf("hub to agent: %d bytes, %v", len(down.GetJson()), err)
	}
	if _, ok := agent.Peer(); ok {
		t.Error("the agent takes the hub for an agent")
	}
	if in, out := hub.Bytes(); in == 0 || out == 0 {
		t.Errorf("counted %d bytes in, %d out", in, out)
	}
}

func TestStoppedServerLeavesSession(t *testing.T) {
	agent, hub := pair(t, tunnel.Control(), somebody())
	serve(t, agent, &service{bytes: 2})

	ctx, cancel := context.WithCancel(t.Context())
	srv := tunnel.NewServer(tunnel.ServerConfig{Lane: tunnel.Control(), Log: quiet()})
	impl := &service{ended: make(chan struct{})}
	linkv1.RegisterSessionServer(srv, impl)
	stopped, attached := make(chan error, 1), make(chan error, 1)
	go func() { stopped <- srv.Serve(ctx) }()
	go func() { attached <- srv.Attach(t.Context(), hub) }()

	conn, err := agent.Conn()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := linkv1.NewSessionClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&linkv1.Beat{Number: 7}); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || r.GetNumber() != 7 {
		t.Fatalf("Recv() = %v, %v", r, err)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Fatalf("Serve() = %v", err)
	}
	<-impl.ended // Serve waits for calls
	if _, err := stream.Recv(); err == nil {
		t.Error("the call outlived its server")
	}
	if _, err := ops(t, hub).Get(t.Context(), &linkv1.GetRequest{}); err != nil {
		t.Errorf("the other direction ended with the server: %v", err)
	}
	hub.Close(errTestOver)
	<-attached
}

func TestSessionEnd(t *testing.T) {
	agent, hub := pair(t, tunnel.Control(), somebody())
	serve(t, hub, &service{})
	client := ops(t, agent)
	if _, err := client.Get(t.Context(), &linkv1.GetRequest{}); err != nil {
		t.Fatal(err)
	}
	hub.Close(fault.New(fault.Denied, "enough"))
	<-agent.Done()
	if err := hub.Err(); fault.KindOf(err) != fault.Denied {
		t.Errorf("hub.Err() = %v, want its own reason", err)
	}
	if err := agent.Err(); !errors.Is(err, tunnel.ErrClosed) {
		t.Errorf("agent.Err() = %v, want ErrClosed", err)
	}
	if _, err := client.Get(t.Context(), &linkv1.GetRequest{}); fault.KindOf(err) != fault.Offline {
		t.Errorf("a call on an ended session = %v, want offline", err)
	}
	agent.Close(errTestOver)
	if _, err := agent.Open(); fault.KindOf(err) != fault.Offline {
		t.Errorf("Open() on an ended session = %v, want offline", err)
	}
	if _, err := hub.Conn(); fault.KindOf(err) != fault.Offline {
		t.Errorf("Conn() of a closed session = %v, want offline", err)
	}
}

func TestMessageTooLarge(t *testing.T) {
	for _, lane := range []tunnel.Lane{tunnel.Control(), tunnel.Bulk()} {
		t.Run("API-22 the size of a message is limited on the lane "+lane.Name, func(t *testing.T) {
			agent, hub := pair(t, lane, somebody())
			impl := &service{bytes: lane.MaxMessage + 1}
			serve(t, hub, impl)
			_, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{})
			if fault.KindOf(err) != fault.Exceeded {
				t.Errorf("an answer that is too large = %v, want exceeded", err)
			}
			impl.bytes = lane.MaxMessage - 1024
			if _, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{}); err != nil {
				t.Errorf("an answer just below the limit, on the same session: %v", err)
			}
			_, err = ops(t, agent).Get(t.Context(), &linkv1.GetRequest{Name: strings.Repeat("x", lane.MaxMessage+1)})
			if fault.KindOf(err) != fault.Exceeded {
				t.Errorf("a request that is too large = %v, want exceeded", err)
			}
		})
	}
}

// A message that is small on the wire and large once it is unpacked is refused
// at the limit: what is beyond it is never allocated.
func TestMessagesThatUnpackToMuch(t *testing.T) {
	for _, lane := range []tunnel.Lane{tunnel.Control(), tunnel.Bulk()} {
		t.Run("SEC-B14 a packed message is limited by what it unpacks to, on the lane "+lane.Name, func(t *testing.T) {
			agent, hub := pair(t, lane, somebody())
			serve(t, hub, &service{})
			size := 4 * lane.MaxMessage
			name := strings.Repeat("x", size)
			_, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{Name: name}, grpc.UseCompressor(gzip.Name), grpc.MaxCallSendMsgSize(2*size))
			if fault.KindOf(err) != fault.Exceeded {
				t.Fatalf("it is %v, want exceeded", err)
			}
			small := strings.Repeat("x", 1024)
			if _, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{Name: small}, grpc.UseCompressor(gzip.Name)); err != nil {
				t.Errorf("a small packed one, on the same session: %v", err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Run("FT-L13 a peer that opens too many streams loses its session", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		serve(t, hub, &service{})
		for {
			c, err := agent.Open()
			if err != nil {
				break
			}
			if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
				break
			}
		}
		<-hub.Done()
		if err := hub.Err(); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("hub.Err() = %v, want exceeded", err)
		}
	})
	t.Run("FT-L13 closed streams do not count", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		go func() {
			for {
				c, err := hub.Accept()
				if err != nil {
					return
				}
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}
		}()
		for i := range 5 * tunnel.Control().MaxStreams {
			c, err := agent.Open()
			if err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
			_, _ = io.ReadAll(c)
		}
	})
	t.Run("FT-L13 calls beyond the limit are refused on any number of streams", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		serve(t, hub, &service{})
		conn, err := agent.Conn()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 128 {
			s, err := linkv1.NewSessionClient(conn).Heartbeat(ctx)
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			if err := s.Send(&linkv1.Beat{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		// gRPC holds the next call on this stream back; one that does not
		// keep to that is refused, so ask on a stream of its own.
		raw, err := grpc.NewClient("passthrough:///x", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return agent.Open() }),
			grpc.WithTransportCredentials(tunnel.CredentialsForTest()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		_, err = linkv1.NewOpsClient(raw).Get(t.Context(), &linkv1.GetRequest{})
		if fault.KindOf(tunnel.Fault(err)) != fault.Exceeded {
			t.Errorf("one call too many = %v, want exceeded", err)
		}
	})
}

func TestStall(t *testing.T) {
	t.Run("FT-L3 the session of a peer that reads nothing ends, and so does the write", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		c, err := agent.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hub.Accept(); err != nil { // and never read from it
			t.Fatal(err)
		}
		agent.StallForTest(50 * time.Millisecond)
		if _, err := c.Write(make([]byte, 1<<20)); err == nil {
			t.Error("a megabyte went into a window of a quarter")
		}
		<-agent.Done()
		if err := agent.Err(); fault.KindOf(err) != fault.Offline {
			t.Errorf("agent.Err() = %v, want offline", err)
		}
	})
	t.Run("FT-L3 a stream that is closed on one side ends, and blocks nothing", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		accepted := make(chan net.Conn, 1)
		go func() {
			if c, err := hub.Accept(); err == nil {
				accepted <- c
			}
		}()
		c, err := agent.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		other := <-accepted
		if b, err := io.ReadAll(other); err != nil || string(b) != "last words" {
			t.Errorf("read %q, %v", b, err)
		}
		// The other side goes on writing to a stream that nobody reads: it
		// gets an error or is freed by Close, and never waits for ever.
		done := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = other.Write(make([]byte, 64<<10))
			}
			done <- err
		}()
		_ = other.Close()
		agent.Close(errTestOver)
		hub.Close(errTestOver)
		if err := <-done; err == nil {
			t.Error("a write to a closed stream went well")
		}
	})
	t.Run("FT-L3 one reader that stops does not hold up another stream", func(t *testing.T) {
		agent, hub := pair(t, tunnel.Control(), somebody())
		streams := make(chan net.Conn, 2)
		go func() {
			for range 2 {
				c, err := hub.Accept()
				if err != nil {
					return
				}
				streams <- c
			}
		}()
		slow, err := agent.Open()
		if err != nil {
			t.Fatal(err)
		}
		<-streams // nobody reads it
		go func() { _, _ = slow.Write(make([]byte, 1<<20)) }()
		quick, err := agent.Open()
		if err != nil {
			t.Fatal(err)
		}
		other := <-streams
		go func() { _, _ = quick.Write([]byte("hello")) }()
		b := make([]byte, 5)
		if _, err := io.ReadFull(other, b); err != nil || string(b) != "hello" {
			t.Errorf("beside a stream that stands still: %q, %v", b, err)
		}
	})
}

func TestGarbage(t *testing.T) {
	t.Run("FT-L13 the session of a peer that sends invalid data ends, and nothing else", func(t *testing.T) {
		p := splitPort(t, nil)
		sessions := make(chan *tunnel.Session, 1)
		go func() {
			c, err := p.Link().Accept()
			if err != nil {
				return
			}
			s, err := tunnel.NewSession(c, tunnel.SessionConfig{Lane: tunnel.Control(), Log: quiet(), Clock: system()})
			if err == nil {
				sessions <- s
			}
		}()
		raw := rawLink(t, p)
		_, _ = raw.Write([]byte(strings.Repeat("\xff\x07garbage", 1000)))
		s := <-sessions
		<-s.Done()
		s.Close(errTestOver)
	})
}
