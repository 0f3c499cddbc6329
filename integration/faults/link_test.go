package faults_test

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/harness"
	"github.com/capstan-cd/capstan/integration/stack"
)

var (
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	getOptions   = metav1.GetOptions{}
	stackSettled = stack.Settled
)

func TestLinkFails(t *testing.T) {
	t.Cleanup(func() { s.Link.Set(harness.Weather{}) })
	t.Run("FT-L1 FT-L6 the link is cut after every few bytes, delayed and slow, during a whole life", func(t *testing.T) {
		stop := make(chan struct{})
		var over sync.WaitGroup
		cuts := 0
		s.Link.Set(harness.Weather{Delay: time.Millisecond, Jitter: 15 * time.Millisecond})
		over.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(1500 * time.Millisecond):
					cuts += s.Link.Cut()
				}
			}
		})
		newRound(t, "cuts", 0).life()
		close(stop)
		over.Wait()
		s.Link.Set(harness.Weather{})
		t.Logf("%d cuts", cuts)
		if cuts == 0 {
			t.Error("nothing was cut")
		}
		atRest(t)
	})
	t.Run("FT-L1 damaged bytes end the session and reach nobody", func(t *testing.T) {
		dials := s.Link.Dials()
		s.Link.Set(harness.Weather{Corrupt: 200})
		s.Link.AwaitDials(dials + 2)
		s.Link.Set(harness.Weather{})
		if err := s.Connected(within(t, 90*time.Second), clusterName); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("FT-L2 FT-L5 a link that is silently dead is noticed by heartbeats, and a sync that was asked for meanwhile is delivered", func(t *testing.T) {
		r := newRound(t, "half-open", 0)
		r.push("one", four)
		r.create(false)
		r.refreshed()
		dials := s.Link.Dials()
		s.Link.Set(harness.Weather{Swallow: harness.Both})
		r.sync("half-open-sync")
		s.Link.AwaitDials(dials + 1) // the agent gave the dead connection up
		s.Link.Set(harness.Weather{})
		s.Link.Cut() // what was dialled into the hole is as dead
		r.settled()
		r.rest()
		r.gather()
		r.remove()
		r.gather()
		r.judge()
	})
}

func TestTwoAgents(t *testing.T) {
	t.Run("FT-A2 a second agent process of one identity does not write while the first one lives", func(t *testing.T) {
		file, err := s.Clusters[clusterName].AccountKubeconfigTo(within(t, time.Minute), harness.AgentNamespace, "capstan-agent", s.Ledgers[clusterName].URL)
		if err != nil {
			t.Fatal(err)
		}
		second, err := harness.StartProcess("agent-two", filepath.Join(s.Bin(), "capstan-agent"), filepath.Join(t.TempDir(), "log"),
			"run", "--kubeconfig", file, "--namespace", harness.AgentNamespace, "--state-dir", filepath.Join(t.TempDir(), "state"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := second.Stop(syscall.SIGTERM, 20*time.Second); err != nil {
				t.Error(err)
			}
			if err := s.Connected(within(t, 90*time.Second), clusterName); err != nil {
				t.Error(err)
			}
		})
		// Both are up: applications are created, updated and deleted as ever, once.
		newRound(t, "two-agents", 0).life()
	})
}

func TestRenderersDie(t *testing.T) {
	t.Run("FT-H4 INV-3 renderers that are killed cost a retry, and nothing is deleted", func(t *testing.T) {
		r := newRound(t, "renderers", 0)
		r.push("one", six)
		stop := make(chan struct{})
		var over sync.WaitGroup
		killed := 0
		over.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					for _, pid := range harness.Children(s.Hub.PID()) {
						if killed < 5 && syscall.Kill(pid, syscall.SIGKILL) == nil {
							killed++
						}
					}
				}
			}
		})
		r.create(true)
		r.settled()
		r.push("two", four)
		r.settled()
		close(stop)
		over.Wait()
		if killed == 0 {
			t.Error("no renderer was killed")
		}
		r.rest()
		r.gather()
		r.remove()
		r.gather()
		r.judge()
		t.Logf("%d renderers killed", killed)
	})
}

func TestHealWhileTheHubIsAway(t *testing.T) {
	t.Run("INV-12 FT-A1 the agent is killed at its points while the hub is away, and heals", func(t *testing.T) {
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Hub.Start(ctx); err != nil {
			t.Fatal(err)
		}
		resume()
		r.push("two", four)
		r.settled()
		r.rest()
		r.gather()
		r.remove()
		r.gather()
		r.judge()
		if n := len(agent.killed()); n == 0 {
			t.Error("the agent was not killed")
		}
	})
}
