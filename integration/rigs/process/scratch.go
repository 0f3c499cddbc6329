package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
)

const (
	// scratchPrefix is how the folders of this package are named, below
	// os.TempDir.
	scratchPrefix = "capstan-"
	// staleAfter protects folders that are being made from the sweep.
	staleAfter = 10 * time.Minute
)

// A Scratch is a folder for one started part. It is locked as long as the
// process that made it runs, so that a later process can find and remove the
// folders of a killed one.
type Scratch struct {
	Path string
	lock *os.File
	keep bool // the folder was given by the caller and is not ours to remove

	sockets string // see SocketFolder
}

// maxSocketFolder is the longest name, in bytes, of a folder for sockets: the
// whole path of a socket must stay below 108.
const maxSocketFolder = 80

// NewScratch makes a folder. With a dir of the caller's choice it uses that
// one and leaves it there when it is closed.
func NewScratch(kind, dir string) (*Scratch, error) {
	s := &Scratch{Path: dir, keep: dir != ""}
	if s.keep {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("folder %q: %w", dir, err)
		}
		s.Path = abs
		if err := os.MkdirAll(abs, 0o755); err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
	} else {
		sweep(os.TempDir())
		tmp, err := os.MkdirTemp("", scratchPrefix+kind+"-")
		if err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
		s.Path = tmp
		// Another user (Postgres refuses to run as root) must get through.
		if err := os.Chmod(tmp, 0o711); err != nil {
			return nil, fmt.Errorf("open folder %q to others: %w", tmp, err)
		}
	}
	lock, err := build.TryLock(filepath.Join(s.Path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("folder %q is in use by another process: %w", s.Path, err)
	}
	s.lock = lock
	return s, nil
}

// SocketFolder makes a private folder whose name is short enough for sockets.
func (s *Scratch) SocketFolder() (string, error) {
	if path := filepath.Join(s.Path, "run"); len(path) <= maxSocketFolder {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("make a folder for sockets: %w", err)
		}
		return path, nil
	}
	var err error
	if s.sockets, err = os.MkdirTemp("/tmp", scratchPrefix+"run-"); err != nil {
		return "", fmt.Errorf("make a folder for sockets: %w", err)
	}
	return s.sockets, nil
}

// Close gives up the lock and removes the folder unless the caller chose it.
func (s *Scratch) Close() error {
	var err error
	if s.sockets != "" {
		err = os.RemoveAll(s.sockets)
	}
	if !s.keep {
		err = errors.Join(err, os.RemoveAll(s.Path))
	}
	return errors.Join(err, s.lock.Close())
}

// sweep removes folders whose makers have gone. It is best effort: what it
// cannot remove stays.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(path, "lock")); err != nil {
			continue // not one of ours
		}
		lock, err := build.TryLock(filepath.Join(path, "lock"))
		if err != nil {
			continue // its maker lives
		}
		_ = os.RemoveAll(path)
		_ = lock.Close()
	}
}
