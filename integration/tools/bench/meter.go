package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// counts are the product's own counters, read from the hub's metrics.
type counts map[string]float64

func (b *bench) counts(ctx context.Context) (counts, error) {
	return readCounts(ctx, b.s.Hub.Metrics())
}

// goroutines is how many the hub has.
func (c counts) goroutines() float64 { return max(c["capstan_goroutines"], c["go_goroutines"]) }

func readCounts(ctx context.Context, url string) (counts, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	out := counts{}
	for _, line := range strings.Split(string(body), "\n") {
		if name, value, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				out[name] = v
			}
		}
	}
	if _, ok := out["capstan_renders_total"]; !ok {
		return nil, fmt.Errorf("the hub's metrics have no capstan_renders_total")
	}
	return out, nil
}

// A span is what happened between two moments.
type span struct {
	b        *bench
	counts   counts
	audit    kube.AuditMark
	requests gitserver.RequestCount
	repo     *gitserver.Repository
	cpu, hub float64
}

func (b *bench) begin(ctx context.Context, repo *gitserver.Repository) (*span, error) {
	c, err := b.counts(ctx)
	if err != nil {
		return nil, err
	}
	m, err := b.s.Clusters["in-cluster"].Mark()
	if err != nil {
		return nil, err
	}
	s := &span{b: b, counts: c, audit: m, repo: repo}
	if repo != nil {
		s.requests = repo.Requests()
	}
	s.cpu, s.hub = b.cpu(), process.CPUSeconds(b.hub()...)
	return s, nil
}

// A tally is the exact counts of a span.
type tally struct {
	renders, reused   int
	listings, fetches int // that the Git host was asked for
	api               kube.Count
	own               int     // writes of the agent's own state, at most one a second
	cpu, hub          float64 // of hub and agent; of the hub alone
}

func (t tally) String() string {
	return fmt.Sprintf("%d renders, %d reused, %d listings, %d fetches; API server: %d watches, %d leases, %d of its own Secret, %d others; CPU-s: hub %.3f, agent %.3f",
		t.renders, t.reused, t.listings, t.fetches, t.api.Watches, t.api.Leases, t.own, t.api.Others, t.hub, t.cpu-t.hub)
}

func (s *span) end(ctx context.Context) (tally, error) {
	c, err := s.b.counts(ctx)
	if err != nil {
		return tally{}, err
	}
	reqs, err := s.b.s.Clusters["in-cluster"].Requests(s.audit)
	if err != nil {
		return tally{}, err
	}
	t := tally{
		renders: int(c["capstan_renders_total"] - s.counts["capstan_renders_total"]),
		reused:  int(c["capstan_renders_reused_total"] - s.counts["capstan_renders_reused_total"]),
		api:     kube.CountByUser(reqs)[s.b.s.Agents["in-cluster"].User()],
		cpu:     s.b.cpu() - s.cpu,
		hub:     process.CPUSeconds(s.b.hub()...) - s.hub,
	}
	for _, r := range reqs {
		if r.User == s.b.s.Agents["in-cluster"].User() && r.Namespace == kube.AgentNamespace && r.Resource == "secrets" {
			t.own++
			t.api.Others--
		}
	}
	if s.repo != nil {
		now := s.repo.Requests()
		t.listings, t.fetches = now.Listings-s.requests.Listings, now.Fetches-s.requests.Fetches
	}
	return t, nil
}

// cpu is what hub, workers and agent have used so far, in seconds.
func (b *bench) cpu() float64 { return process.CPUSeconds(b.family()...) }

// family is the hub with its workers, and the agent.
func (b *bench) family() []int { return append(b.hub(), b.s.Agents["in-cluster"].PID()) }

func (b *bench) hub() []int { return append([]int{b.s.Hub.PID()}, process.Children(b.s.Hub.PID())...) }
