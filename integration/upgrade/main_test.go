// Package upgrade_test has agents upgraded by their hub, with real parts: the
// chart as Helm renders it, an API server with its controllers and rights, a
// hub, and the agent and its updater as the processes that a kubelet would
// start. Only the kubelet is the test's own.
package upgrade_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/harness"
	"github.com/capstan-cd/capstan/integration/stack"
)

var (
	s       *stack.Stack
	cluster *harness.Cluster
	dir     string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "capstan-upgrade-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	stop, err := begin(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		code = 1
	}
	if code == 0 {
		_ = os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "logs are kept in", dir)
	}
	return code
}

func begin(ctx context.Context) (stop func() error, err error) {
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./hub/cmd/capstan-hub", "./agent/cmd/capstan-agent", "./cli/cmd/capstan")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	if s, err = stack.Start(ctx, stack.Options{Bin: bin, Dir: dir}); err != nil {
		return nil, err
	}
	cluster, err = harness.StartCluster(ctx, "edge", harness.ClusterOptions{Controllers: true})
	if err != nil {
		_ = s.Stop()
		return nil, err
	}
	return func() error {
		if err := cluster.Stop(); err != nil {
			return err
		}
		return s.Stop()
	}, nil
}
