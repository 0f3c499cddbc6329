package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// product are the programs of the product.
var product = []string{"hub/cmd/capstan-hub", "agent/cmd/capstan-agent", "cli/cmd/capstan"}

// Product builds hub, agent and command line of the source tree into a folder,
// compiled as "make build" does, with more flags for the Go tool. They are linked
// once for all who ask: a folder of the cache has the newest ones.
func Product(ctx context.Context, to string, flags ...string) error {
	root, cache, err := places("product")
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(root + "\x00" + strings.Join(flags, "\x00")))
	shared := filepath.Join(cache, hex.EncodeToString(key[:8]))
	unlock, err := waitForLock(ctx, shared+".lock", func() {})
	if err != nil {
		return err
	}
	defer unlock()
	if err := ProductInto(ctx, shared, flags...); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, pkg := range product {
		name := filepath.Base(pkg)
		if err := linkOrCopy(filepath.Join(shared, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// ProductInto builds like Product, for flags that nobody else uses.
func ProductInto(ctx context.Context, dir string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, flags...)
	for _, pkg := range product {
		args = append(args, module+"/"+pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// linkOrCopy gives a file a second name, or copies it to another file system.
func linkOrCopy(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
