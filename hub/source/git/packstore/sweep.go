package packstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sweep removes what an interrupted process left in the folder of packs. No
// other process may write there meanwhile.
func (o *Objects) Sweep() error {
	list, err := os.ReadDir(o.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	for _, e := range list {
		name := e.Name()
		if !strings.HasPrefix(name, "tmp_") && !strings.HasSuffix(name, ".tmp") && !o.orphan(name) {
			continue
		}
		if err := removed(filepath.Join(o.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// orphan reports whether a pack has no index: it was not put in place whole.
func (o *Objects) orphan(name string) bool {
	base, isPack := strings.CutSuffix(name, ".pack")
	if !isPack {
		return false
	}
	_, err := os.Stat(filepath.Join(o.dir, base+".idx"))
	return errors.Is(err, os.ErrNotExist)
}
