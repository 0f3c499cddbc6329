// Package upgrade_test has agents upgraded by their hub, with real parts: the
// chart as Helm renders it, an API server with its controllers and rights, a
// hub, and the agent and its updater as the processes that a kubelet would
// start. Only the kubelet is the test's own.
package upgrade_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

var (
	s       *stack.Stack
	cluster *kube.Cluster
	dir     string
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "upgrade", 20*time.Minute, begin)) }

func begin(ctx context.Context, in string) (stop func() error, err error) {
	dir = in
	if s, err = suite.Installed(ctx, dir, stack.Options{}); err != nil {
		return nil, err
	}
	if cluster, err = kube.Start(ctx, "edge", kube.Options{Controllers: true}); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return suite.All(cluster.Stop, s.Stop), nil
}
