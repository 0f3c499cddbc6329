package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
	"github.com/capstan-cd/capstan/integration/rigs/vault"
)

// s is the installation of all tests of this package: hub and agent are built
// with their failpoints, and everything between the parts can fail.
var (
	s        *stack.Stack
	spans    *stack.Collector // of hub and agent
	hub      *victim
	agent    *victim
	canaries = canary.New()
	// vaults is where the agent reads secrets with the token in a file.
	vaults       *vault.Server
	accountToken string
)

const clusterName = "in-cluster"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "faults", 170*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	bin, err := suite.Build(ctx, dir, "-tags", "failpoints")
	if err != nil {
		return nil, err
	}
	if hub, err = newVictim(ctx, "hub", bin, dir); err != nil {
		return nil, err
	}
	if agent, err = newVictim(ctx, "agent", bin, dir); err != nil {
		return nil, err
	}
	if spans, err = stack.StartCollector(ctx); err != nil {
		return nil, err
	}
	plugins, err := leakyPlugins(dir)
	if err != nil {
		return nil, err
	}
	if vaults, err = vault.Open(filepath.Join(dir, "vault")); err != nil {
		return nil, err
	}
	accountToken = filepath.Join(dir, "vault", "account.token")
	policy := filepath.Join(dir, "secrets.yaml")
	if err := os.WriteFile(policy, []byte(secretPolicy()), 0o600); err != nil {
		return nil, err
	}
	traced := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.Endpoint, "OTEL_BSP_SCHEDULE_DELAY=200"}
	s, err = stack.Start(ctx, stack.Options{
		Bin: bin, Dir: dir, Clusters: []string{clusterName}, Nodes: true, Faulty: true,
		HubEnv: append(hub.env(), traced...), AgentEnv: append(append(agent.env(), traced...), "CAPSTAN_SECRETS_FILE="+policy),
		Settings: map[string]any{
			"sources":   map[string]any{"allowPrivate": []string{"127.0.0.0/8"}, "pollInterval": "2s", "proxies": []map[string]any{{"url": "http://127.0.0.1:1"}}},
			"heartbeat": "1s", "replica": "hub-0", "log": map[string]any{"level": "debug"}, "render": map[string]any{"plugins": map[string]any{"folder": plugins}},
		},
	})
	if err != nil {
		return nil, err
	}
	hub.process, agent.process = s.Hub, s.Agents[clusterName]
	hub.watch()
	agent.watch()
	return func() error {
		hub.close()
		agent.close()
		defer spans.Stop()
		defer vaults.Close()
		return s.Stop()
	}, nil
}

// waitLimit is how long a step may hang. One step may see dozens of processes
// die and start again, on a slow machine too.
const waitLimit = 10 * time.Minute

// within bounds a step.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
