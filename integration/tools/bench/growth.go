package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

const (
	growthRounds = 5                // changes, or looks, at one size
	growthIdle   = 20 * time.Second // how long idle work is counted
)

// growth measures how the cost of one cluster's applications grows: B28.
func (b *bench) growth(ctx context.Context) error {
	for _, curve := range []func(context.Context) error{b.growApps, b.growNodes, b.growRefs} {
		if err := curve(ctx); err != nil {
			return err
		}
	}
	return nil
}

func grownName(i int) string { return fmt.Sprintf("app-g%04d", i) }

// growApps lets the number of applications grow, all of one repository.
func (b *bench) growApps(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "growth", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	idle := &measure{what: "applications → CPU of the idle hub", most: 0.1, format: "%.2f%%"}
	memory := &measure{what: "applications → memory of the hub", most: 0.5, format: "%.0f MiB"}
	one := &measure{what: "applications in a repository, one changed → CPU of hub and agent", most: 0.1, format: "%.0f ms"}
	all := &measure{what: "applications changed → push to applied", most: 1, format: "%.0f ms"}
	list := &measure{what: "applications → the slowest of 20 looks at a page of 50", most: 0.15, format: "%.1f ms"}
	had := 0
	for _, n := range []int{32, 100, 316, 1000} {
		if err := b.growTo(ctx, repo, had, n); err != nil {
			return err
		}
		had = n
		if err := pause(ctx, 2*settle); err != nil {
			return err
		}
		before := process.CPUSeconds(b.hub()...)
		if err := pause(ctx, growthIdle); err != nil {
			return err
		}
		idle.add(float64(n), 100*(process.CPUSeconds(b.hub()...)-before)/growthIdle.Seconds())
		memory.add(float64(n), process.PSS(b.hub()...))
		cpu, err := b.changeGrown(ctx, repo, o, n, 1)
		if err != nil {
			return err
		}
		one.add(float64(n), 1000*cpu.cpu)
		took, err := b.changeGrown(ctx, repo, o, n, n)
		if err != nil {
			return err
		}
		all.add(float64(n), float64(took.took.Milliseconds()))
		slowest := time.Duration(0)
		for range 20 {
			begin := time.Now()
			if _, err := b.size(ctx, "/api/v1/applications?limit=50"); err != nil {
				return err
			}
			slowest = max(slowest, time.Since(begin))
		}
		list.add(float64(n), slowest.Seconds()*1000)
	}
	b.show(idle, memory, one, all, list)
	return b.dropGrown(ctx, had)
}

// growTo makes applications of two objects, number from to to, and waits until
// all are Synced.
func (b *bench) growTo(ctx context.Context, repo *gitserver.Repository, from, to int) error {
	files, all := map[string]string{}, strings.Builder{}
	for i := from; i < to; i++ {
		name := grownName(i)
		files["apps/"+name+"/one.yaml"] = configMap(name+"-one", "v0")
		files["apps/"+name+"/two.yaml"] = configMap(name+"-two", "v0")
		all.WriteString(application(name, "apps/"+name, repo.URL(), "growth"))
	}
	if _, err := repo.Commit(ctx, fmt.Sprintf("%d applications", to), files); err != nil {
		return err
	}
	if _, err := b.s.API.Apply(ctx, all.String()); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return b.allAre(wait, "Synced", "")
}

type change struct {
	took time.Duration // middle of all rounds
	cpu  float64       // of hub and agent in a round, seconds
}

// changeGrown changes one object in each of some of the applications, some
// times, and waits until the cluster has it.
func (b *bench) changeGrown(ctx context.Context, repo *gitserver.Repository, o *observer, n, some int) (change, error) {
	var took []time.Duration
	begin := b.cpu()
	for round := range growthRounds {
		value := fmt.Sprintf("grown-%d-%d-%d", n, some, round)
		files := map[string]string{}
		for i := range some {
			name := grownName(i)
			files["apps/"+name+"/one.yaml"] = configMap(name+"-one", value)
		}
		if _, err := repo.Commit(ctx, value, files); err != nil {
			return change{}, err
		}
		pushed := time.Now()
		wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
		at, err := o.until(wait, value, some)
		if err == nil {
			err = b.allAre(wait, "Synced", "")
		}
		cancel()
		if err != nil {
			return change{}, err
		}
		took = append(took, max(0, at.Sub(pushed)))
	}
	slices.Sort(took)
	return change{took[len(took)/2], (b.cpu() - begin) / growthRounds}, nil
}

// dropGrown takes the applications away, so that they are not in the way of
// what is measured next.
func (b *bench) dropGrown(ctx context.Context, n int) error {
	for i := range n {
		path := "/api/v1/applications/argocd/" + grownName(i) + "?cascade=false"
		if err := b.s.API.Do(ctx, http.MethodDelete, path, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// growNodes lets one application grow, and counts what goes over the wire for
// one changed object.
func (b *bench) growNodes(ctx context.Context) error {
	sent := &measure{what: "objects of an application, one changed → bytes to the agent", most: 0.1, format: "%.0f"}
	back := &measure{what: "objects of an application, one changed → bytes back", most: 0.1, format: "%.0f"}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	for _, n := range []int{50, 158, 500, 1581, 5000} {
		name := fmt.Sprintf("nodes-%d", n)
		repo, err := b.s.Repository(ctx, name, gitserver.RepositoryOptions{})
		if err != nil {
			return err
		}
		files := map[string]string{}
		for i := range n {
			object := fmt.Sprintf("%s-%05d", name, i)
			files[fmt.Sprintf("all/%02d.yaml", i%50)] += "---\n" + configMap(object, "v0")
		}
		files["all/one.yaml"] = configMap(name+"-one", "v0")
		if _, err := repo.Commit(ctx, "begin", files); err != nil {
			return err
		}
		if _, err := b.s.API.Apply(ctx, application(name, "all", repo.URL(), "growth")); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
		_, err = b.s.API.Wait(wait, name, stack.Settled)
		cancel()
		if err != nil {
			return err
		}
		out, in, err := b.changeNode(ctx, repo, o, name)
		if err != nil {
			return err
		}
		sent.add(float64(n), out)
		back.add(float64(n), in)
	}
	b.show(sent, back)
	return nil
}

// changeNode changes one object some times and gives the bytes of the last.
func (b *bench) changeNode(ctx context.Context, repo *gitserver.Repository, o *observer, name string) (sent, received float64, err error) {
	for round := range growthRounds {
		if err := pause(ctx, 2*time.Second); err != nil { // reports of what came before go first
			return 0, 0, err
		}
		before, err := b.counts(ctx)
		if err != nil {
			return 0, 0, err
		}
		value := fmt.Sprintf("%s-%d", name, round)
		commit, err := repo.Commit(ctx, value, map[string]string{"all/one.yaml": configMap(name+"-one", value)})
		if err != nil {
			return 0, 0, err
		}
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		if _, err = o.until(wait, value, 1); err == nil {
			err = b.reached(wait, name, commit)
		}
		cancel()
		if err != nil {
			return 0, 0, err
		}
		after, err := b.counts(ctx)
		if err != nil {
			return 0, 0, err
		}
		sent, received = after.wire("sent")-before.wire("sent"), after.wire("received")-before.wire("received")
	}
	return sent, received, nil
}

// growRefs lets a repository's branches and commits grow.
func (b *bench) growRefs(ctx context.Context) error {
	took := &measure{what: "branches of a repository → push to applied", most: 0.15, format: "%.0f ms"}
	repo, err := b.s.Repository(ctx, "refs", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", map[string]string{"app/one.yaml": configMap("refs-one", "v0")}); err != nil {
		return err
	}
	if _, err := b.s.API.Apply(ctx, application("refs", "app", repo.URL(), "growth")); err != nil {
		return err
	}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	had := 0
	for _, n := range []int{10, 32, 100, 316, 1000} {
		for i := had; i < n; i++ {
			if _, err := repo.Run(ctx, "branch", fmt.Sprintf("branch-%04d", i)); err != nil {
				return err
			}
		}
		if _, err := repo.Run(ctx, "push", "--quiet", "--all"); err != nil {
			return err
		}
		had = n
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		var each []time.Duration
		for round := range growthRounds {
			value := fmt.Sprintf("refs-%d-%d", n, round)
			if _, err := repo.Commit(ctx, value, map[string]string{"app/one.yaml": configMap("refs-one", value)}); err != nil {
				return err
			}
			pushed := time.Now()
			wait, cancel := context.WithTimeout(ctx, time.Minute)
			at, err := o.until(wait, value, 1)
			cancel()
			if err != nil {
				return err
			}
			each = append(each, max(0, at.Sub(pushed)))
		}
		slices.Sort(each)
		took.add(float64(n), float64(each[len(each)/2].Microseconds())/1000)
	}
	b.show(took)
	return nil
}
