package git_test

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
)

// BenchmarkFetchPush measures push → fetched over loopback HTTP from a real
// git http-backend: a listing and the transfer of one small commit. Making
// the commit is not measured; server-ms is the share of git's own programs.
func BenchmarkFetchPush(b *testing.B) {
	for _, size := range []int{10, 5000} {
		b.Run(fmt.Sprintf("files=%d", size), func(b *testing.B) {
			origin, repo, m := monorepo(b, size)
			ctx := context.Background()
			var times []time.Duration
			origin.Spent.Store(0)
			i := 0
			for b.Loop() {
				b.StopTimer()
				i++
				origin.Commit("refs/heads/main", "push", gittest.Files{"app0/f0.yaml": fmt.Sprint("i: ", i)})
				b.StartTimer()
				begin := time.Now()
				if _, err := m.Fetch(ctx, tenant, repo, hub.Credential{}); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begin))
			}
			slices.Sort(times)
			b.ReportMetric(milliseconds(times[len(times)/2]), "p50-ms")
			b.ReportMetric(milliseconds(times[len(times)*99/100]), "p99-ms")
			b.ReportMetric(milliseconds(time.Duration(origin.Spent.Load()))/float64(len(times)), "server-ms/op")
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkFetchUnchanged measures a poll that finds nothing new.
func BenchmarkFetchUnchanged(b *testing.B) {
	_, repo, m := monorepo(b, 10)
	for b.Loop() {
		if _, err := m.Fetch(context.Background(), tenant, repo, hub.Credential{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGitFetch is the git program doing the same as BenchmarkFetchPush.
func BenchmarkGitFetch(b *testing.B) {
	origin, repo, _ := monorepo(b, 10)
	local := origin.Repo("local.git")
	local.Git("", "fetch", "--quiet", repo.URL+".git", "+refs/heads/*:refs/heads/*")
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		origin.Commit("refs/heads/main", "push", gittest.Files{"app0/f0.yaml": fmt.Sprint("i: ", i)})
		b.StartTimer()
		local.Git("", "fetch", "--quiet", repo.URL+".git", "+refs/heads/*:refs/heads/*")
	}
}

// BenchmarkTreeRead measures reading 1,000 files of one commit.
func BenchmarkTreeRead(b *testing.B) {
	_, repo, m := monorepo(b, 1000)
	ctx := context.Background()
	refs, err := m.Fetch(ctx, tenant, repo, hub.Credential{})
	if err != nil {
		b.Fatal(err)
	}
	commit := gittest.ByName(refs)["HEAD"]
	b.ReportAllocs()
	for b.Loop() {
		tree, err := m.Tree(ctx, tenant, repo, commit)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			n++
			_, err = tree.ReadFile(name)
			return err
		})
		if err != nil || n != 1000 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkTreeInput measures lookups of 1,000 recorded inputs in a tree.
func BenchmarkTreeInput(b *testing.B) {
	_, repo, m := monorepo(b, 1000)
	ctx := context.Background()
	refs, err := m.Fetch(ctx, tenant, repo, hub.Credential{})
	if err != nil {
		b.Fatal(err)
	}
	tree, err := m.Tree(ctx, tenant, repo, gittest.ByName(refs)["HEAD"])
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for i := range 1000 {
			if in, err := tree.Input(hub.InputFile, fmt.Sprintf("app%d/f%d.yaml", i/50, i)); err != nil || in.Hash == "" {
				b.Fatal(in, err)
			}
		}
	}
}

// BenchmarkClone measures the first fetch of 5,000 files and 30 commits.
func BenchmarkClone(b *testing.B) {
	origin, _, _ := monorepo(b, 5000)
	for i := range 30 {
		origin.Commit("refs/heads/main", "more", gittest.Files{fmt.Sprintf("app%d/f0.yaml", i): fmt.Sprint(i)})
	}
	origin.Git("", "repack", "-adq")
	m := gittest.NewMirrors(b, git.Config{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Fetch(context.Background(), tenant, origin.Hub(), hub.Credential{}); err != nil {
			b.Fatal(err)
		}
	}
}

// monorepo makes a fetched repository with a number of small manifests, 50 in
// each folder.
func monorepo(b *testing.B, size int) (*gittest.Repo, hub.Repository, *git.Mirrors) {
	b.Helper()
	s := gittest.New(b)
	origin := s.Repo("mono.git")
	all := gittest.Files{}
	for i := range size {
		all[fmt.Sprintf("app%d/f%d.yaml", i/50, i)] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\ndata:\n  text: %q\n", i, strings.Repeat("x", 300))
	}
	origin.Commit("refs/heads/main", "base", all)
	repo := origin.Hub()
	m := gittest.NewMirrors(b, git.Config{})
	if _, err := m.Fetch(context.Background(), tenant, repo, hub.Credential{}); err != nil {
		b.Fatal(err)
	}
	return origin, repo, m
}

// BenchmarkIdle measures the memory of a repository after its idle time, and in
// the time of use before.
func BenchmarkIdle(b *testing.B) {
	origin, _, _ := monorepo(b, 1000)
	const repositories = 100
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for b.Loop() {
		m := gittest.NewMirrors(b, git.Config{})
		before := heap()
		for range repositories {
			if _, err := m.Fetch(context.Background(), tenant, origin.Hub(), hub.Credential{}); err != nil {
				b.Fatal(err)
			}
		}
		active := heap()
		gittest.CloseMirrors(b, m)
		origin.HTTP.CloseClientConnections()
		b.ReportMetric(float64(active-before)/repositories, "active-B/repo")
		b.ReportMetric(float64(heap()-before)/repositories, "idle-B/repo")
		runtime.KeepAlive(m)
	}
}
