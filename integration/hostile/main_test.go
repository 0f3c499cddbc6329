// Package hostile_test lets one tenant attack a whole installation through its
// repositories, while another one works: real binaries, a real API server,
// real Git over HTTP, Postgres. What must hold is that the other tenant, the
// API and the status go on, and that each attack ends as one clear sentence on
// the application that it came from.
package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/stack"
)

// s is the installation; its own admin is the tenant that works. evil is the
// admin of the other one.
var (
	s    *stack.Stack
	evil *stack.API
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "capstan-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if err := begin(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		return 1
	}
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
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
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./hub/cmd/capstan-hub", "./agent/cmd/capstan-agent", "./cli/cmd/capstan")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	var err error
	s, err = stack.Start(ctx, stack.Options{
		Bin: bin, Dir: dir, Clusters: []string{"in-cluster"},
		Settings: map[string]any{"render": map[string]any{"workers": 2, "timeout": "2s", "memoryMiB": 256}},
	})
	if err != nil {
		return err
	}
	out, err := s.API.CLI(ctx, "", "tenant", "create", "evil", "-o", "json")
	if err != nil {
		return err
	}
	var made struct {
		SetupToken string `json:"setupToken"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return err
	}
	if evil, err = s.SecondAdmin(ctx, filepath.Join(dir, "evil"), made.SetupToken); err != nil {
		return err
	}
	// A cluster without an agent is enough for what is rendered for it.
	_, err = evil.CLI(ctx, "", "cluster", "enroll", "in-cluster", "--token-only")
	return err
}

// within bounds a step of a story.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
