//go:build soak

package faults_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

func TestTwoAgents(t *testing.T) {
	t.Run("FT-A2 two agent processes of one identity never both write, and one continues when the other has ended", func(t *testing.T) {
		file, err := s.Clusters[clusterName].AccountKubeconfigTo(within(t, waitLimit), kube.AgentNamespace, "capstan-agent", s.Ledgers[clusterName].URL)
		if err != nil {
			t.Fatal(err)
		}
		dials := s.Link.Dials()
		second, err := process.Start(process.Command{
			Name: "agent-two", Path: filepath.Join(s.Bin(), "capstan-agent"), Log: filepath.Join(t.TempDir(), "log"), Orphan: syscall.SIGKILL,
			Args: []string{"run", "--kubeconfig", file, "--namespace", kube.AgentNamespace, "--state-dir", filepath.Join(t.TempDir(), "state")},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Stop(syscall.SIGKILL, time.Second) })
		s.Link.AwaitDials(dials + 2) // the second one came, and the first one tries again
		r := newRound(t, "two-agents", 0)
		r.push("one", six)
		r.create(true)
		r.refreshed()
		if err := second.Stop(syscall.SIGKILL, time.Second); err != nil {
			t.Fatal(err)
		}
		if err := s.Connected(within(t, waitLimit), clusterName); err != nil {
			t.Fatal(err)
		}
		r.settled()
		r.push("two", four)
		r.settled()
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
	})
}

func TestRenderersAreKilled(t *testing.T) {
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
					for _, pid := range process.Children(s.Hub.PID()) {
						if killed < 2 && syscall.Kill(pid, syscall.SIGKILL) == nil {
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
		r.collect()
		r.remove()
		r.collect()
		r.check()
		t.Logf("%d renderers killed", killed)
	})
}

func TestKilledOneByOne(t *testing.T) {
	for _, v := range []*victim{hub, agent} {
		before, armed := len(v.killed()), 0
		for i, point := range v.points {
			t.Run("FT-H1 FT-A1 kill -9 at "+point+" alone", func(t *testing.T) {
				for hit := 1; hit <= 2; hit++ {
					armed++
					v.arm(t, map[string]string{point: fmt.Sprintf("exit:%d", hit)})
					newRound(t, fmt.Sprintf("one-%s-%d-%d", v.name, i, hit), int64(hit)).life()
					v.arm(t, nil)
				}
			})
		}
		// A life does not come by every point, and by some only once.
		n := len(v.killed()) - before
		t.Logf("%s: killed %d times in %d lives", v.name, n, armed)
		if n < armed/2 {
			t.Errorf("%s was killed in %d of %d lives only, which shows little", v.name, n, armed)
		}
	}
	atRest(t)
}
