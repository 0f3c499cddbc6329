package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A pace is how fast a request's body must arrive: all of it within the grace
// and the time that its bytes take at the least rate. Sizes are bounded by the
// API, so no body takes for ever. Responses have no limit, because streams are
// long.
type pace struct {
	grace time.Duration
	rate  int64 // bytes a second
}

func bodyPace() pace { return pace{grace: 20 * time.Second, rate: 16 << 10} }

// hold ends requests whose bodies come too slowly, also those whose handlers
// read none of it: the server reads what is left.
func (p pace) hold(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &pacedBody{ReadCloser: r.Body, pace: p, answer: w, control: http.NewResponseController(w), began: time.Now()}
			b.extend(b.began)
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// pacedBody is a body with a deadline that moves with what has come.
type pacedBody struct {
	io.ReadCloser
	pace    pace
	answer  http.ResponseWriter
	control *http.ResponseController
	began   time.Time
	size    int64
	until   time.Time
}

// Read reads, and extends the connection's deadline as long as the pace is met.
func (b *pacedBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.size += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // the handler may take its time
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.answer.Header().Set("Connection", "close")
		err = fault.With(fault.Wrap(fault.Invalid, err, "the body of the request came too slowly"), "",
			"send it at once; a connection that carries less than 16 KiB a second is cut")
	case err == nil:
		b.extend(b.began.Add(time.Duration(float64(b.size) / float64(b.pace.rate) * float64(time.Second))))
	}
	return n, err
}

func (b *pacedBody) extend(from time.Time) {
	if until := from.Add(b.pace.grace); until.Sub(b.until) >= b.pace.grace/20 {
		b.until = until
		_ = b.control.SetReadDeadline(until)
	}
}

// connections bounds those of one address to the HTTP listeners. Trusted
// proxies, which carry many clients, have no limit.
type connections struct {
	most    int
	proxies clientip.Proxies
	log     *slog.Logger

	mu    sync.Mutex
	of    map[net.Conn]string // the address that each counts under
	held  map[string]int
	noted time.Time
}

func newConnections(most int, proxies clientip.Proxies, log *slog.Logger) *connections {
	return &connections{most: most, proxies: proxies, log: log, of: map[net.Conn]string{}, held: map[string]int{}}
}

// state follows the state of a connection, as http.Server.ConnState.
func (c *connections) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if !c.enter(conn) {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.leave(conn)
	case http.StateActive, http.StateIdle:
	}
}

func (c *connections) enter(conn net.Conn) bool {
	address := conn.RemoteAddr().String()
	if c.proxies.Trust(address) {
		return true
	}
	key := clientip.Key(address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key] >= c.most {
		if now := time.Now(); now.Sub(c.noted) >= time.Minute {
			c.noted = now
			c.log.WarnContext(context.Background(), "too many connections of one address, the newest are closed", logkey.Address, key,
				logkey.Most, c.most, logkey.Security, 3, logkey.CWE, 400)
		}
		return false
	}
	c.held[key]++
	c.of[conn] = key
	return true
}

func (c *connections) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok := c.of[conn]
	if !ok {
		return
	}
	delete(c.of, conn)
	if c.held[key]--; c.held[key] <= 0 {
		delete(c.held, key)
	}
}
