package faults_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/harness"
	"github.com/capstan-cd/capstan/integration/stack"
)

// s is the installation of all tests of this package: hub and agent are built
// with their failpoints, and everything between the parts can fail.
var (
	s        *stack.Stack
	hub      *victim
	agent    *victim
	canaries = harness.NewCanaries()
)

const clusterName = "in-cluster"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "capstan-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 170*time.Minute)
	defer cancel()
	if err := begin(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 1
	}
	code := m.Run()
	hub.close()
	agent.close()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		code = 1
	}
	if code == 0 {
		_ = os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "logs are kept in", dir)
	}
	return code
}

func begin(ctx context.Context, dir string) error {
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "failpoints", "-o", bin+"/", "./hub/cmd/capstan-hub", "./agent/cmd/capstan-agent", "./cli/cmd/capstan")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	var err error
	if hub, err = newVictim(ctx, "hub", bin, dir); err != nil {
		return err
	}
	if agent, err = newVictim(ctx, "agent", bin, dir); err != nil {
		return err
	}
	s, err = stack.Start(ctx, stack.Options{
		Bin: bin, Dir: dir, Clusters: []string{clusterName}, Nodes: true, Faulty: true, HubEnv: hub.env(), AgentEnv: agent.env(),
		Settings: map[string]any{"sources": map[string]any{"allowPrivate": []string{"127.0.0.0/8"}, "pollInterval": "2s"}, "heartbeat": "1s", "replica": "hub-0"},
	})
	if err != nil {
		return err
	}
	hub.process, agent.process = s.Hub, s.Agents[clusterName]
	hub.watch()
	agent.watch()
	return nil
}

// within bounds a step.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
