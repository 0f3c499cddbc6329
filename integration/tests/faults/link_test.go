package faults_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

var (
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	stackSettled = stack.Settled
)

func TestHealWhileTheHubIsUnreachable(t *testing.T) {
	t.Run("INV-12 FT-A1 the agent is killed at its failpoints while the hub is unreachable, and heals", func(t *testing.T) {
		r := newRound(t, "away", 0)
		r.push("one", four)
		r.create(true)
		r.settled()
		resume := hub.pause()
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		agent.arm(t, exits([]string{"agent.apply.before-heal", "agent.apply.after-send", "agent.apply.after-record", "agent.inventory.before-commit", "agent.lease.after-renew"}))
		for i := range 4 {
			r.edit(four[i], "one")
		}
		agent.arm(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if err := s.Hub.Start(ctx); err != nil {
			t.Fatal(err)
		}
		resume()
		r.push("two", four)
		r.settled()
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
		if n := len(agent.killed()); n == 0 {
			t.Error("the agent was not killed")
		}
	})
}
