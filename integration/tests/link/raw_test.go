package link_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

var errTestOver = errors.New("the test is over")

// dialPlain is a client without a certificate.
func dialPlain(t testing.TB, r *replica) grpc.ClientConnInterface {
	t.Helper()
	return dialWith(t, r, nil, tunnel.Control())
}

// dialWith is a client with a certificate, and none of an agent's manners.
func dialWith(t testing.TB, r *replica, cert *tls.Certificate, lane tunnel.Lane) grpc.ClientConnInterface {
	t.Helper()
	c, hangUp := dialOnce(t, r, cert, lane)
	t.Cleanup(hangUp)
	return c
}

// dialOnce is dialWith for a caller that hangs up itself: of one agent only a
// few connections are taken at a time.
func dialOnce(t testing.TB, r *replica, cert *tls.Certificate, lane tunnel.Lane) (c grpc.ClientConnInterface, hangUp func()) {
	t.Helper()
	pin, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	s, err := tunnel.Dial(t.Context(), r.addr, tunnel.DialConfig{
		Lane: lane, Pins: []tunnel.Pin{pin}, Certificate: cert, Log: (&logs{}).logger(), Clock: lifecycle.System{},
	})
	if err != nil {
		t.Fatal(err)
	}
	hangUp = func() { s.Close(errTestOver) }
	if c, err = s.Conn(); err != nil {
		hangUp()
		t.Fatal(err)
	}
	return c, hangUp
}
