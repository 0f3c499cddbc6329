package runtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ending is how long goroutines may take to end: those of the last connections
// take longer on a busy machine than goleak waits by default.
const ending = time.Minute

// Main is the TestMain of a package that leaves no goroutine behind.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := leaked(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// NoLeaks begins a test, or a part of one, that leaves no goroutine behind; the
// function that it returns checks that.
func NoLeaks(t testing.TB) (end func()) {
	known := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		if err := leaked(known); err != nil {
			t.Error(err)
		}
	}
}

// leaked returns the goroutines that do not end.
func leaked(options ...goleak.Option) error {
	for begun := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(begun) > ending {
			return err
		}
	}
}
