// Package machine is for tests that need something which a developer's machine
// may lack: the rights of root, a program, a kernel feature.
package machine

import (
	"os"
	"testing"
)

// Lacks skips a test because the machine lacks what it needs. Where the
// environment has CI set the test fails instead: there a proof that vanishes
// unseen is a defect.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
