package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// many measures a repository of many applications: B02 creates them and
// changes all their objects, B09 changes one file, B13 does nothing.
func (b *bench) many(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "mono", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", b.mono("v0")); err != nil {
		return err
	}
	if err := b.create(ctx, repo); err != nil {
		return err
	}
	// Only now: creating ends by what the hub says, and watching costs too.
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps, services, serviceAccounts, deployments)
	if err != nil {
		return err
	}
	if b.wants("B02") {
		if err := b.changeAll(ctx, repo, o); err != nil {
			return err
		}
	}
	if b.wants("B09") {
		if err := b.changeOne(ctx, repo, o); err != nil {
			return err
		}
	}
	if b.wants("B13") {
		return b.still(ctx)
	}
	return nil
}

func (b *bench) name(i int) string { return fmt.Sprintf("app-%03d", i) }

func (b *bench) mono(value string) map[string]string {
	files := map[string]string{}
	for i := range b.apps {
		for name, text := range web("apps/"+b.name(i), value) {
			files[name] = text
		}
	}
	return files
}

func (b *bench) create(ctx context.Context, repo *gitserver.Repository) error {
	var all strings.Builder
	for i := range b.apps {
		all.WriteString(application(b.name(i), "apps/"+b.name(i), repo.URL(), "bench"))
	}
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	prof := profiler{b.profiles, b.s}
	if err := prof.statements(ctx, "B02-before-statements.txt"); err != nil {
		return err
	}
	busy := prof.busyProfile(ctx, "B02-accept")
	begin := time.Now()
	if _, err := b.s.API.Apply(ctx, all.String()); err != nil {
		return err
	}
	applied := time.Since(begin)
	if err := errors.Join(busy(), prof.statements(ctx, "B02-accept-statements.txt")); err != nil {
		return err
	}
	busy = prof.busyProfile(ctx, "B02-create")
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := b.allAre(wait, "Synced", ""); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := errors.Join(busy(), prof.statements(ctx, "B02-create-statements.txt")); err != nil {
		return err
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B02", fmt.Sprintf("create %d applications of 5 objects until all are Synced", b.apps),
		fmt.Sprintf("%.2f s (accepted after %.2f s)", took.Seconds(), applied.Seconds()), t.String())
	settle, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	return b.allAre(settle, "Synced", "Healthy")
}

// pollEvery is how often the hub is asked: rarely enough that the asking is
// not what is measured.
const pollEvery = 200 * time.Millisecond

// allAre waits until every application of the bench has a sync and, unless it
// is empty, a health status.
func (b *bench) allAre(ctx context.Context, sync, health string) error {
	return b.namedAre(ctx, "app-", sync, health)
}

// namedAre is allAre for those with something in their names.
func (b *bench) namedAre(ctx context.Context, part, sync, health string) error {
	for {
		n, sample, err := b.lagging(ctx, part, sync, health)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("applications are not %s %s yet, such as %s: %w", sync, health, sample, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// lagging counts the applications that are not there yet. It asks for those
// alone, so that the observer costs the hub little.
func (b *bench) lagging(ctx context.Context, part, sync, health string) (n int, sample string, err error) {
	queries := []string{"sync=OutOfSync&sync=Unknown"}
	if health != "" {
		queries = append(queries, "health=Progressing&health=Degraded&health=Missing&health=Unknown&health=Suspended")
	}
	for _, q := range queries {
		var page struct {
			Items []struct {
				Metadata struct{ Name string }
			}
		}
		if err := b.s.API.Do(ctx, http.MethodGet, "/api/v1/applications?q="+part+"&limit=1&"+q, nil, &page); err != nil {
			return 0, "", err
		}
		if len(page.Items) > 0 {
			return len(page.Items), page.Items[0].Metadata.Name + ": " + q, nil
		}
	}
	return 0, "", nil
}

func (b *bench) changeAll(ctx context.Context, repo *gitserver.Repository, o *observer) error {
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	prof := profiler{b.profiles, b.s}
	if err := prof.statements(ctx, "B02-settled-statements.txt"); err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "all", b.mono("v1")); err != nil {
		return err
	}
	pushed := time.Now()
	busy := prof.busyProfile(ctx, "B02-change")
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	at, err := o.until(wait, "v1", 5*b.apps)
	if err != nil {
		return err
	}
	if err := errors.Join(busy(), prof.statements(ctx, "B02-change-statements.txt")); err != nil {
		return err
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B02", fmt.Sprintf("a commit that changes all %d objects until the last is applied", 5*b.apps), fmt.Sprintf("%.2f s", at.Sub(pushed).Seconds()), t.String())
	return b.allAre(wait, "Synced", "Healthy")
}

func (b *bench) changeOne(ctx context.Context, repo *gitserver.Repository, o *observer) error {
	var took []time.Duration
	var t tally
	for i := range 5 {
		s, err := b.begin(ctx, repo)
		if err != nil {
			return err
		}
		value := fmt.Sprintf("only-%d", i)
		commit, err := repo.Commit(ctx, value, map[string]string{"apps/" + b.name(i) + "/one.yaml": configMap("one-"+b.name(i), value)})
		if err != nil {
			return err
		}
		pushed := time.Now()
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		at, err := o.until(wait, value, 1)
		if err == nil {
			err = b.allAt(wait, commit)
		}
		cancel()
		if err != nil {
			return err
		}
		took = append(took, max(0, at.Sub(pushed)))
		if t, err = s.end(ctx); err != nil {
			return err
		}
		if t.renders != 1 || t.fetches != 1 || t.api.Others != 1 {
			return fmt.Errorf("B09 must cost exactly 1 render, 1 fetch and 1 request: %s", t)
		}
	}
	b.add("B09", fmt.Sprintf("one file changed in a repository of %d applications", b.apps), spread(took), t.String()+" (each)")
	return nil
}

// allAt waits until every application is Synced at a revision. The database is
// asked, because a list of all of them would cost the hub more than the change.
func (b *bench) allAt(ctx context.Context, commit string) error {
	db, err := pgx.Connect(ctx, b.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	return poll.Until(ctx, func(ctx context.Context) error {
		var n int
		err := db.QueryRow(ctx, `
			SELECT count(*) FROM application_status s JOIN application a ON a.tenant_id = s.tenant_id AND a.id = s.application_id
			WHERE  a.name LIKE 'app-%' AND s.revision = $1 AND s.sync = 'Synced'`, commit).Scan(&n)
		if err == nil && n != b.apps {
			err = fmt.Errorf("%d of %d applications are Synced at %.8s", n, b.apps, commit)
		}
		return err
	})
}

func (b *bench) still(ctx context.Context) error {
	busy, err := sizeOfDatabase(ctx, b.s)
	if err != nil {
		return err
	}
	b.add("B13", fmt.Sprintf("database right after %d applications were created and changed", b.apps), busy.String(), "")
	// The agent notes how far it came up to a second after the last change.
	if err := pause(ctx, 5*time.Second); err != nil {
		return err
	}
	s, err := b.begin(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Printf("      nothing is done for %s\n", b.idle)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.idle):
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	hub := append([]int{b.s.Hub.PID()}, process.Children(b.s.Hub.PID())...)
	b.add("B13", fmt.Sprintf("idle for %s with %d applications", b.idle, b.apps),
		fmt.Sprintf("hub %.0f MiB PSS, agent %.0f MiB", process.PSS(hub...), process.PSS(b.s.Agents["in-cluster"].PID())), t.String())
	idle, err := sizeOfDatabase(ctx, b.s)
	if err != nil {
		return err
	}
	b.add("B13", "database after that", idle.String(), "")
	if t.renders != 0 || t.api.Others != 0 || t.own != 0 {
		return fmt.Errorf("B13 must cost no render and no request but watches and leases: %s", t)
	}
	return nil
}
