package link_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/run"
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
	pin, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	s, err := tunnel.Dial(t.Context(), r.addr, tunnel.DialConfig{
		Lane: lane, Pins: []tunnel.Pin{pin}, Certificate: cert, Log: (&logs{}).logger(), Clock: run.System{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(errTestOver) })
	c, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
