package ldap

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
)

// A Dial opens a TCP connection, within the limits that the hub sets for where
// it connects to.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// maxBytes is how much is read from a directory during one check and over one
// connection.
const maxBytes = 16 << 20

// errTooMuch means that a directory sent more than is read.
var errTooMuch = errors.New("the directory sends more than is read")

// A conn is a connection that ends with its context.
type conn struct {
	*goldap.Conn
	release func() bool
}

func (c *conn) close() {
	c.release()
	_ = c.Close()
}

// open connects, with TLS unless the configuration says otherwise.
func (d *Directory) open(ctx context.Context) (*conn, error) {
	address, _ := d.cfg.address()
	secure, err := d.cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	raw, err := d.dial(ctx, "tcp", address)
	if err != nil {
		return nil, connector.Unreachable(d.object, err)
	}
	limited := &limitedConn{Conn: raw, left: maxBytes}
	encrypted := !d.cfg.InsecureNoSSL && !d.cfg.StartTLS
	var stream net.Conn = limited
	if encrypted {
		client := tls.Client(limited, secure)
		if err := client.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, connector.Unreachable(d.object, err)
		}
		stream = client
	}
	c := goldap.NewConn(stream, encrypted)
	c.SetTimeout(timeLimit)
	out := &conn{Conn: c, release: context.AfterFunc(ctx, func() { _ = raw.Close() })}
	c.Start()
	if d.cfg.StartTLS {
		if err := c.StartTLS(secure); err != nil {
			out.close()
			return nil, d.startTLSFailed(ctx, err)
		}
	}
	return out, nil
}

func (d *Directory) startTLSFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return connector.Unreachable(d.object, ctx.Err())
	}
	if goldap.IsErrorWithCode(err, goldap.ErrorNetwork) { // the library hides what TLS says behind a text
		return d.offline(err, "the TLS handshake with it fails", "check that its certificate is for this host name and signed by an authority of rootCAData or of the hub")
	}
	return d.offline(err, "it refuses StartTLS", "use its port for TLS without startTLS, or switch TLS on in the directory")
}

// A limitedConn ends a connection that is sent too much.
type limitedConn struct {
	net.Conn
	left int64
}

// Read reads until the limit. One goroutine of the library reads.
func (c *limitedConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := io.LimitReader(c.Conn, c.left).Read(b)
	c.left -= int64(n)
	return n, err
}
