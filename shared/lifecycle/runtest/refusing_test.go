package runtest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestRefusing(t *testing.T) {
	at := runtest.Refusing(t)
	if conn, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial %s: %v, %v; want that it is refused", at, conn, err)
	}
	if l, err := net.Listen("tcp", at); err == nil {
		_ = l.Close()
		t.Errorf("%s can be listened at by others", at)
	}
}
