package crossreads_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation.
var s *stack.Stack

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "crossreads", 25*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	s, err = suite.Installed(ctx, dir, stack.Options{
		Settings: map[string]any{"limits": map[string]any{"requestsPerSecond": 100_000, "burst": 100_000}},
	})
	if err != nil {
		return nil, err
	}
	return s.Stop, nil
}
