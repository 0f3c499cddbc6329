package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// SplitConfig configures the sharing of one port.
type SplitConfig struct {
	// Link answers agents. Its protocols are set by Split.
	Link *tls.Config
	// HTTP answers everyone else; nil refuses them. Its protocols are set by
	// Split to HTTP/2 and HTTP/1.1.
	HTTP *tls.Config
	// Handshake bounds the TLS handshake; zero: 10 s.
	Handshake time.Duration
	// Pending bounds the connections whose handshake is not complete. One more
	// evicts one of the busiest source. Zero: 1,024.
	Pending int
	// PerSource bounds those of one source: an IPv4 address, or a /64 of
	// IPv6. Zero: three quarters of Pending.
	PerSource int
	// Client returns the client's address of a WebSocket request; nil: that of
	// its connection.
	Client func(*http.Request) string
	Log    *slog.Logger
}

// A Splitter shares one TCP port between the link and the HTTP API, by what the
// client offers in its TLS handshake. Both listeners return *tls.Conn with a
// completed handshake.
type Splitter struct {
	raw  net.Listener
	cfg  SplitConfig
	tls  *tls.Config
	link *queue
	http *queue

	pending *pending
}

// Split prepares the sharing of a listener. Run does the work and owns the
// listener from then on.
func Split(raw net.Listener, cfg SplitConfig) *Splitter {
	if cfg.Handshake == 0 {
		cfg.Handshake = 10 * time.Second
	}
	if cfg.Pending == 0 {
		cfg.Pending = 1024
	}
	if cfg.PerSource == 0 {
		cfg.PerSource = max(1, cfg.Pending*3/4)
	}
	if cfg.Client == nil {
		cfg.Client = func(r *http.Request) string { return r.RemoteAddr }
	}
	return &Splitter{
		raw: raw, cfg: cfg, tls: splitTLS(cfg),
		link: newQueue(raw.Addr()), http: newQueue(raw.Addr()),
		pending: newPending(cfg.Pending, cfg.PerSource, cfg.Log),
	}
}

// Link returns the connections of agents.
func (s *Splitter) Link() net.Listener { return s.link }

// HTTP returns all others. An http.Server serves HTTP/2 on them, too.
func (s *Splitter) HTTP() net.Listener { return s.http }

// Addr is the address that is shared.
func (s *Splitter) Addr() net.Addr { return s.raw.Addr() }

// Run accepts connections until ctx ends, then closes the listener, waits for
// running handshakes, and returns nil. Returned connections belong to their
// receivers.
func (s *Splitter) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var pending sync.WaitGroup
	defer func() {
		cancel()
		_ = s.raw.Close()
		_ = s.link.Close()
		_ = s.http.Close()
		pending.Wait()
	}()
	release := context.AfterFunc(ctx, func() { _ = s.raw.Close() })
	defer release()
	for {
		c, err := s.raw.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil {
			if !s.pause(ctx, err) {
				return err
			}
			continue
		}
		w, ok := s.pending.enter(ctx, c, c.RemoteAddr().String())
		if !ok {
			_ = c.Close()
			continue
		}
		pending.Go(func() {
			defer s.pending.leave(w)
			s.handshake(ctx, c)
		})
	}
}

// pause waits after a temporary error of accept, such as too many open files.
// It returns false for a permanent one.
func (s *Splitter) pause(ctx context.Context, err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	s.cfg.Log.WarnContext(ctx, "a connection could not be accepted", logkey.Error, err)
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

func (s *Splitter) handshake(ctx context.Context, raw net.Conn) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Handshake)
	defer cancel()
	conn := tls.Server(raw, s.tls)
	if err := conn.HandshakeContext(limited); err != nil {
		s.refuse(ctx, raw, err)
		return
	}
	to := s.http
	if _, ok := LaneOf(conn.ConnectionState().NegotiatedProtocol); ok {
		tuneBelow(raw)
		to = s.link
	}
	if !to.put(limited, conn) {
		_ = raw.Close()
	}
}

// refuse ends a connection without a handshake. A browser that uses the port
// without https gets a sentence.
func (s *Splitter) refuse(ctx context.Context, raw net.Conn, err error) {
	defer func() { _ = raw.Close() }()
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && startsLikeHTTP(record.RecordHeader) {
		_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nThis port speaks TLS: use https://.\n")
	}
	s.cfg.Log.DebugContext(ctx, "handshake refused", logkey.Address, raw.RemoteAddr().String(), logkey.Error, err)
}

func startsLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET", "CONNE", "PRI *":
		return true
	}
	return false
}

// linkConfig is the link's own handshake, on a shared port or in a WebSocket.
func linkConfig(cfg SplitConfig) *tls.Config {
	link := cfg.Link.Clone()
	link.MinVersion = tls.VersionTLS13
	link.NextProtos = []string{ControlProtocol, BulkProtocol}
	return link
}

func splitTLS(cfg SplitConfig) *tls.Config {
	link := linkConfig(cfg)
	var web *tls.Config
	if cfg.HTTP != nil {
		web = cfg.HTTP.Clone()
		web.MinVersion = max(web.MinVersion, tls.VersionTLS12)
		web.NextProtos = []string{"h2", "http/1.1"}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { _, ok := LaneOf(p); return ok }) {
				return link, nil
			}
			if web == nil {
				return nil, fault.New(fault.Invalid, "only agents are served on this port")
			}
			return web, nil
		},
	}
}

// queue is a listener for connections that are put into it. It buffers none:
// put blocks until Accept.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (q *queue) put(ctx context.Context, c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
	case <-ctx.Done():
	}
	return false
}

// Accept waits for the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close stops Accept; the port stays open for the other listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr is the address of the shared port.
func (q *queue) Addr() net.Addr { return q.addr }
