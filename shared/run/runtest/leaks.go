package runtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package that leaves no goroutine behind. Those
// that are ending have a minute for it: the ones of connections that were
// closed last take longer on a busy machine than goleak waits by itself.
func Main(m *testing.M) {
	code := m.Run()
	for begun := time.Now(); code == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
