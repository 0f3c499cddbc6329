package postgres_test

import (
	"os"
	"testing"
	"time"
)

// waitLimit is the most that a test waits for something that must happen.
const waitLimit = 3 * time.Minute

// sharedDir is a folder that other users can enter, which t.TempDir is not.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "harness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}
