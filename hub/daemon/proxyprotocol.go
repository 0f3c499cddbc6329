package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	proxyHeader  = 5 * time.Second // within which a proxy sends its header
	proxyPending = 1024            // connections whose header is awaited
	acceptPause  = 100 * time.Millisecond
)

// A proxyListener reads the header of the PROXY protocol, version 1 or 2, from
// connections of trusted proxies. They must begin with it: a client behind a
// proxy without it could otherwise write one itself. Connections of others are
// accepted unread, so what they claim never counts.
type proxyListener struct {
	net.Listener
	trusted clientip.Proxies
	log     *slog.Logger
	conns   chan net.Conn
	slots   chan struct{}
	done    chan struct{}
	once    sync.Once
	failed  error // of Accept below; set before done is closed
}

func newProxyListener(ln net.Listener, trusted clientip.Proxies, log *slog.Logger) *proxyListener {
	l := &proxyListener{
		Listener: ln, trusted: trusted, log: log,
		conns: make(chan net.Conn), slots: make(chan struct{}, proxyPending), done: make(chan struct{}),
	}
	go l.accept()
	return l
}

// accept takes connections until the listener is closed or fails.
func (l *proxyListener) accept() {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			l.end(err)
			return
		}
		if err != nil { // such as too many open files
			l.log.WarnContext(context.Background(), "a connection could not be accepted", logkey.Error, err)
			select {
			case <-time.After(acceptPause):
			case <-l.done:
			}
			continue
		}
		if !l.trusted.Trust(c.RemoteAddr().String()) {
			l.deliver(c)
			continue
		}
		select {
		case l.slots <- struct{}{}:
			go func() {
				defer func() { <-l.slots }()
				l.read(c)
			}()
		case <-l.done:
			_ = c.Close()
		}
	}
}

// read awaits the header of one connection.
func (l *proxyListener) read(c net.Conn) {
	p := proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyHeader))
	client := p.RemoteAddr() // reads the header
	if p.ProxyHeader() == nil {
		// A health check of the proxy connects and says nothing.
		l.log.DebugContext(context.Background(), "a connection of a trusted proxy has no PROXY header", logkey.Address, c.RemoteAddr().String())
		_ = c.Close()
		return
	}
	l.deliver(&proxied{Conn: p, below: c, client: client})
}

func (l *proxyListener) deliver(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.done:
		_ = c.Close()
	}
}

func (l *proxyListener) end(err error) {
	l.once.Do(func() {
		l.failed = err
		close(l.done)
	})
}

// Accept waits for the next connection.
func (l *proxyListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, l.failed
	}
}

// Close ends the listener.
func (l *proxyListener) Close() error {
	err := l.Listener.Close()
	l.end(net.ErrClosed)
	return err
}

// proxied is a connection whose client a proxy has named.
type proxied struct {
	net.Conn // behind the header
	below    net.Conn
	client   net.Addr
}

// RemoteAddr is the client's address.
func (p *proxied) RemoteAddr() net.Addr { return p.client }

// NetConn is the TCP connection, for settings of the socket.
func (p *proxied) NetConn() net.Conn { return p.below }
