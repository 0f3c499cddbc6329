package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
)

func TestSweepRemovesOnlyWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := time.Now().Add(-2 * staleAfter)
	folder := func(name string, lock bool) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if lock {
			if err := os.WriteFile(filepath.Join(path, "lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left := folder("capstan-cluster-1", true)
	held := folder("capstan-cluster-2", true)
	foreign := folder("capstan-something", false)
	other := folder("other-cluster", true)
	fresh := folder("capstan-cluster-3", true)
	if err := os.Chtimes(fresh, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	lock, err := build.TryLock(filepath.Join(held, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()

	sweep(dir)

	for path, why := range map[string]string{held: "its maker lives", foreign: "it has no lock, so it is not ours", other: "its name is not ours", fresh: "it is being made"} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s was removed although %s", filepath.Base(path), why)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a dead process is still there: %v", err)
	}
}
