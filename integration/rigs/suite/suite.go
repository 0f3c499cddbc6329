// Package suite is shared by the packages of tests around one installation: it
// builds the programs, provides a folder that stays when a test fails, and
// stops everything at the end.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A Begin sets up what the tests of a package share, in a folder, and gives
// what ends it.
type Begin func(ctx context.Context, dir string) (stop func() error, err error)

// Main runs the tests of a package between begin and its end, which may take
// as long as limit together, and gives the exit code of TestMain. The folder is
// removed unless something failed.
func Main(m *testing.M, name string, limit time.Duration, begin Begin) int {
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "capstan-"+name+"-")
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stop, err := begin(ctx, dir)
	if err != nil {
		return fail(err)
	}
	code := m.Run()
	if err := stop(); err != nil {
		code = fail(err)
	}
	if code == 0 {
		_ = os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "logs are kept in", dir)
	}
	return code
}

// Build builds hub, agent and command line into a folder of dir, and gives it.
func Build(ctx context.Context, dir string, flags ...string) (bin string, err error) {
	bin = filepath.Join(dir, "bin")
	return bin, build.Product(ctx, bin, flags...)
}

// Installed builds the programs and starts an installation of them.
func Installed(ctx context.Context, dir string, o stack.Options) (*stack.Stack, error) {
	bin, err := Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	o.Bin, o.Dir = bin, dir
	return stack.Start(ctx, o)
}

// All returns what stops everything, in this order, whatever fails.
func All(stops ...func() error) func() error {
	return func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
}
