package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// shallow limits a request to the newest commits of each branch, if the
// repository has a depth (SRC-25). A server that cannot do that sends all.
func (v *visit) shallow(req *packp.UploadPackRequest) error {
	if v.repo.Depth == 0 || !v.listed.Capabilities.Supports(capability.Shallow) {
		return nil
	}
	known, err := v.shallows()
	if err != nil {
		return err
	}
	if err := req.Capabilities.Set(capability.Shallow); err != nil {
		return fmt.Errorf("set capability: %w", err)
	}
	req.Shallows, req.Depth = known, packp.DepthCommits(v.repo.Depth)
	return nil
}

// shallowFile lists the commits whose parents are not here, as git does.
func (m *mirror) shallowFile() string { return filepath.Join(m.dir, "shallow") }

func (m *mirror) isShallow() bool {
	_, err := os.Stat(m.shallowFile())
	return err == nil
}

func (m *mirror) shallows() (out []plumbing.Hash, err error) {
	text, err := os.ReadFile(m.shallowFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the end of the history: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); plumbing.IsHash(line) {
			out = append(out, plumbing.NewHash(line))
		}
	}
	return out, nil
}

// putShallow adds commits to the list and removes others. It is written before
// the objects come, and shortened after: a crash between them leaves a list that
// claims too little.
func (m *mirror) putShallow(add, remove []plumbing.Hash) error {
	if len(add)+len(remove) == 0 {
		return nil
	}
	all, err := m.shallows()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(append(all, add...), func(h plumbing.Hash) bool { return slices.Contains(remove, h) })
	slices.SortFunc(all, func(a, b plumbing.Hash) int { return strings.Compare(a.String(), b.String()) })
	var text strings.Builder
	for _, h := range slices.Compact(all) {
		text.WriteString(h.String() + "\n")
	}
	at := m.shallowFile()
	if err := os.WriteFile(at+".tmp", []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write the end of the history: %w", err)
	}
	if err := os.Rename(at+".tmp", at); err != nil {
		return fmt.Errorf("write the end of the history: %w", err)
	}
	return nil
}
