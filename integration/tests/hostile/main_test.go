// Package hostile_test lets one tenant attack a whole installation through its
// repositories, while another one works: real binaries, a real API server,
// real Git over HTTP, Postgres. What must hold is that the other tenant, the
// API and the status go on, and that each attack ends as one clear sentence on
// the application that it came from.
package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation; its own admin is the tenant that works. evil is the
// admin of the other one.
var (
	s    *stack.Stack
	evil *stack.API
)

// proxy is the address of this machine whose word on a client's address counts.
const proxy = "127.0.5.1"

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "hostile", 55*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	s, err = suite.Installed(ctx, dir, stack.Options{
		Clusters: []string{"in-cluster"},
		Settings: map[string]any{"render": map[string]any{"workers": 2, "timeout": "5s", "memoryMiB": 256}, "trustedProxies": []string{proxy}},
	})
	if err != nil {
		return nil, err
	}
	if err := letIn(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s.Stop, nil
}

// letIn makes the other tenant.
func letIn(ctx context.Context, dir string) error {
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

// waitLimit is how long a step may hang, on a slow machine too. It is less than
// the time between two looks of the hub at a repository.
const waitLimit = 2 * time.Minute

// within bounds a step of a story.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
