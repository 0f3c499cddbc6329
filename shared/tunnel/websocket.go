package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// WebSocketPath is where a hub accepts the link's WebSocket.
const WebSocketPath = "/link/v1"

const (
	frame     = chunk     // most bytes of one message that is sent
	mostFrame = 2 * chunk // most bytes of an accepted message
	busyRetry = 10        // seconds after which a client of a busy hub may retry
)

// errUsedUp means that an upgrade was already used.
var errUsedUp = errors.New("the connection of an upgrade is used once")

// upgrade turns a TLS connection into a WebSocket.
func upgrade(ctx context.Context, conn *tls.Conn, address string) (net.Conn, error) {
	var used atomic.Bool
	transport := &http.Transport{
		DisableCompression: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errUsedUp
			}
			return conn, nil
		},
		ReadBufferSize: smallBuffer, WriteBufferSize: smallBuffer, MaxResponseHeaderBytes: mostAnswer,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	host := address
	if h, port, err := net.SplitHostPort(address); err == nil && port == "443" {
		host = h
		if ip := net.ParseIP(h); ip != nil && ip.To4() == nil {
			host = "[" + h + "]"
		}
	}
	u := url.URL{Scheme: "https", Host: host, Path: WebSocketPath}
	ws, res, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: client, CompressionMode: websocket.CompressionDisabled, HTTPHeader: http.Header{"User-Agent": {"capstan-agent"}},
	})
	if err != nil {
		return nil, upgradeFault(res, err)
	}
	return newWebSocket(ws, conn, conn.RemoteAddr().String()), nil
}

// upgradeFault says in a sentence why there is no WebSocket.
func upgradeFault(res *http.Response, err error) error {
	const none = "what answers TLS there offers neither the link protocol nor a WebSocket"
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Offline, err, "the WebSocket upgrade got no answer")
	case res == nil:
		return fault.Wrap(fault.Offline, err, none+": the connection was cut")
	}
	switch res.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		e := &fault.Error{Kind: fault.Exceeded, Cause: "too many agents connect at once: " + statusText(res.StatusCode), Err: err}
		if s, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && s > 0 {
			e.RetryAfter = min(time.Duration(s)*time.Second, mostRetry)
		}
		return e
	case http.StatusSwitchingProtocols:
		return fault.Wrap(fault.Offline, err, none+": the answer to the upgrade is damaged")
	}
	return fault.With(fault.Wrap(fault.Offline, err, none+": the upgrade was refused with %s", statusText(res.StatusCode)),
		"", "let WebSockets on "+WebSocketPath+" pass to the hub, or let its TLS pass untouched")
}

// webSocket is a WebSocket as a connection of bytes.
type webSocket struct {
	net.Conn // reads and writes messages
	ws       *websocket.Conn
	below    net.Conn
	from     wsAddr
}

// wsAddr is where the other side of a WebSocket is. A trusted proxy may report
// it.
type wsAddr string

func (wsAddr) Network() string  { return "websocket" }
func (a wsAddr) String() string { return string(a) }

func newWebSocket(ws *websocket.Conn, below net.Conn, from string) *webSocket {
	// Its receiver closes it together with the connection.
	c := websocket.NetConn(context.Background(), ws, websocket.MessageBinary)
	ws.SetReadLimit(mostFrame)
	return &webSocket{Conn: c, ws: ws, below: below, from: wsAddr(from)}
}

// Write sends messages of bounded size.
func (c *webSocket) Write(b []byte) (int, error) {
	var sent int
	for sent < len(b) {
		n, err := c.Conn.Write(b[sent:min(len(b), sent+frame)])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Close ends it at once, without a close frame: that could wait for a peer that
// no longer reads, and nothing depends on it.
func (c *webSocket) Close() error {
	err := closeBelow(c.below)
	_ = c.ws.CloseNow()
	_ = c.Conn.Close() // releases its timers; the WebSocket is closed
	return err
}

// LocalAddr is that of the TCP connection.
func (c *webSocket) LocalAddr() net.Addr { return c.below.LocalAddr() }

// RemoteAddr is the client's address: that of the TCP connection, or the one
// that a trusted proxy reports.
func (c *webSocket) RemoteAddr() net.Addr { return c.from }

// closeBelow closes the connection below all TLS.
func closeBelow(c net.Conn) error {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return closeBelow(t.NetConn())
	}
	return c.Close()
}

// WebSocket accepts agents that connect by WebSocket, wherever it is served: on
// the shared port itself, or behind a load balancer that terminates TLS. Link
// returns these connections like all others of agents.
func (s *Splitter) WebSocket() http.Handler {
	inner := linkConfig(s.cfg)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := s.cfg.Client(r)
		tap := &hijackTap{ResponseWriter: w}
		waiting, ok := s.pending.enter(r.Context(), tap, client)
		if !ok {
			w.Header().Set("Retry-After", strconv.Itoa(busyRetry))
			http.Error(w, "too many agents connect at once", http.StatusServiceUnavailable)
			return
		}
		defer s.pending.leave(waiting)
		ws, err := websocket.Accept(tap, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil { // the client has its response
			s.cfg.Log.DebugContext(r.Context(), "upgrade refused", logkey.Address, r.RemoteAddr, logkey.Error, err)
			return
		}
		s.welcome(newWebSocket(ws, tap.conn, client), inner)
	})
}

// welcome does the link's handshake inside a WebSocket.
func (s *Splitter) welcome(ws *webSocket, inner *tls.Config) {
	// The request's context ends when the connection is upgraded.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Handshake)
	defer cancel()
	tuneBelow(ws.below)
	conn := tls.Server(ws, inner)
	if err := conn.HandshakeContext(ctx); err != nil {
		s.cfg.Log.DebugContext(ctx, "handshake refused", logkey.Address, ws.RemoteAddr().String(), logkey.Error, err)
		_ = ws.Close()
		return
	}
	if _, ok := LaneOf(conn.ConnectionState().NegotiatedProtocol); !ok || !s.link.put(ctx, conn) {
		_ = ws.Close()
	}
}

func tuneBelow(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		tuneBelow(t.NetConn())
		return
	}
	tuneSocket(c)
}

// hijackTap records the connection that an upgrade hijacks.
type hijackTap struct {
	http.ResponseWriter

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

// Hijack returns the connection and remembers it.
func (h *hijackTap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = c
	if h.closed {
		return nil, nil, errors.Join(net.ErrClosed, c.Close())
	}
	return c, rw, nil
}

// Close ends the connection, also before it is hijacked.
func (h *hijackTap) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.conn == nil {
		return nil
	}
	return closeBelow(h.conn)
}
