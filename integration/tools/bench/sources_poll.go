package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

const (
	pollInterval = time.Minute
	polledRepos  = 1000
	polledPushes = 40 // commits whose detection is timed, over two intervals
)

// polled measures 1,000 repositories without webhooks: B06.
func (x *sourceBench) polled(ctx context.Context) error {
	repos, urls, err := x.manyRepositories(ctx)
	if err != nil {
		return err
	}
	var all strings.Builder
	for i, url := range urls {
		all.WriteString(strings.Replace(application(fmt.Sprintf("poly-%04d", i), "app", url, "poly"), "name: in-cluster", "name: "+x.f.Agents[0].Name, 1))
	}
	if _, err := x.s.API.Apply(ctx, all.String()); err != nil {
		return err
	}
	synced := `SELECT count(*) FROM application_status s JOIN application a USING (tenant_id) WHERE a.id = s.application_id AND a.name LIKE 'poly-%' AND s.sync = 'Synced'`
	if err := x.within(ctx, "Synced", synced, polledRepos); err != nil {
		return err
	}
	if err := x.quiet(ctx); err != nil {
		return err
	}
	if err := pause(ctx, pollInterval); err != nil { // the first polls come at once, the next ones spread
		return err
	}
	if err := x.statements(ctx, "B06-before.txt"); err != nil {
		return err
	}
	// Two intervals in which nothing changes.
	asked := requestsOf(repos)
	profiled := x.profileFor(ctx, "B06", int(pollInterval.Seconds()))
	cpu, begin := process.CPUSeconds(x.f.hub()...), time.Now()
	if err := pause(ctx, 2*pollInterval); err != nil {
		return err
	}
	took, spent := time.Since(begin), process.CPUSeconds(x.f.hub()...)-cpu
	if err := errors.Join(profiled(), x.statements(ctx, "B06-statements.txt")); err != nil {
		return err
	}
	now := requestsOf(repos)
	listings := now.Listings - asked.Listings
	null, err := x.nullPoll(ctx, urls)
	if err != nil {
		return err
	}
	each := spent / float64(max(listings, 1))
	x.add("B06", fmt.Sprintf("%d repositories polled each %s, nothing changes", polledRepos, pollInterval),
		fmt.Sprintf("%.2f%% of a core, %.2f ms a poll, efficiency %.2f", 100*spent/took.Seconds(), 1000*each, null/each),
		fmt.Sprintf("%d listings, %d fetches in %.0f s; hub %.2f CPU-s; null system %.2f ms a poll", listings, now.Fetches-asked.Fetches, took.Seconds(), spent, 1000*null))
	return x.detection(ctx, repos)
}

// manyRepositories are copies of one, each with one object.
func (x *sourceBench) manyRepositories(ctx context.Context) (repos []*gitserver.Repository, urls []string, err error) {
	first, err := x.s.Git.Create(ctx, "poly/first", gitserver.RepositoryOptions{})
	if err != nil {
		return nil, nil, err
	}
	if _, err := first.Commit(ctx, "begin", map[string]string{"app/one.yaml": configMap("one", "v0")}); err != nil {
		return nil, nil, err
	}
	root := x.s.Git.Repositories()
	for i := range polledRepos {
		name := fmt.Sprintf("poly/r%04d", i)
		if err := os.CopyFS(filepath.Join(root, name+".git"), os.DirFS(filepath.Join(root, "poly/first.git"))); err != nil {
			return nil, nil, err
		}
		r, err := x.s.Git.Create(ctx, name, gitserver.RepositoryOptions{})
		if err != nil {
			return nil, nil, err
		}
		repos, urls = append(repos, r), append(urls, r.URL())
	}
	return repos, urls, nil
}

func requestsOf(repos []*gitserver.Repository) (sum gitserver.RequestCount) {
	for _, r := range repos {
		c := r.Requests()
		sum.Listings += c.Listings
		sum.Fetches += c.Fetches
	}
	return sum
}

// nullPoll is the CPU of one exchange with a repository.
func (x *sourceBench) nullPoll(ctx context.Context, urls []string) (float64, error) {
	n, err := newNullRender(ctx)
	if err != nil {
		return 0, err
	}
	defer n.close()
	took, err := n.run(ctx, nullOrder{Listings: urls})
	return took / float64(len(urls)), err
}

// detection pushes to some of the repositories at any time, without a webhook,
// and says when their applications show the commit.
func (x *sourceBench) detection(ctx context.Context, repos []*gitserver.Repository) error {
	random := rand.New(rand.NewPCG(6, 6))
	pushed := map[string]time.Time{}
	seen := map[string]time.Duration{}
	observe := func() error {
		for commit, at := range pushed {
			var n int
			if err := x.db.QueryRow(ctx, `SELECT count(*) FROM application_status WHERE revision = $1`, commit).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				seen[commit] = time.Since(at)
				delete(pushed, commit)
			}
		}
		return nil
	}
	until := time.Now().Add(2 * pollInterval)
	next := time.Now()
	for made := 0; time.Now().Before(until.Add(pollInterval)); {
		if made < polledPushes && !time.Now().Before(next) {
			i := random.IntN(len(repos))
			commit, err := repos[i].Commit(ctx, "change", map[string]string{"app/one.yaml": configMap("one", fmt.Sprint("v", made))})
			if err != nil {
				return err
			}
			pushed[commit] = time.Now()
			made++
			next = next.Add(2 * pollInterval / polledPushes)
		}
		if err := observe(); err != nil {
			return err
		}
		if made == polledPushes && len(pushed) == 0 {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	if len(pushed) > 0 {
		return fmt.Errorf("%d of %d commits were not found within %s", len(pushed), polledPushes, pollInterval)
	}
	var took []time.Duration
	for _, d := range seen {
		took = append(took, d)
	}
	slices.Sort(took)
	x.add("B06", fmt.Sprintf("%d pushes without a webhook, until they are found", len(took)),
		fmt.Sprintf("median %.1f s, p99 %.1f s, max %.1f s", took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds(), took[len(took)-1].Seconds()), "")
	return nil
}
