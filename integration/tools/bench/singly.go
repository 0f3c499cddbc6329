package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// singly measures the same as B02 by one request for each application, one
// after the other, as scripts and other tools do: B02P. While the later ones
// are accepted the earlier ones are rendered, applied and reported.
func (b *bench) singly(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "singly", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	files := map[string]string{}
	for i := range b.apps {
		for name, text := range web("apps/"+b.singleName(i), "v0") {
			files[name] = text
		}
	}
	if _, err := repo.Commit(ctx, "begin", files); err != nil {
		return err
	}
	prof := profiler{b.profiles, b.s}
	if err := b.createSingly(ctx, repo, prof); err != nil {
		return err
	}
	return b.deleteSingly(ctx, prof)
}

func (b *bench) singleName(i int) string { return fmt.Sprintf("one-%03d", i) }

// forEach makes one request for each application and gives what each took.
func (b *bench) forEach(do func(name string) error) ([]time.Duration, error) {
	var took []time.Duration
	for i := range b.apps {
		began := time.Now()
		if err := do(b.singleName(i)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// percentiles shows the middle and the end of a series, and all of it.
func percentiles(d []time.Duration) string {
	s := slices.Clone(d)
	slices.Sort(s)
	var sum time.Duration
	for _, v := range s {
		sum += v
	}
	return fmt.Sprintf("%.1f ms each (p50 %.1f, p99 %.1f), %.2f s", sum.Seconds()*1000/float64(len(s)),
		s[len(s)/2].Seconds()*1000, s[len(s)*99/100].Seconds()*1000, sum.Seconds())
}

func (b *bench) createSingly(ctx context.Context, repo *gitserver.Repository, prof profiler) error {
	bodies := map[string]map[string]any{}
	for i := range b.apps {
		name := b.singleName(i)
		var body map[string]any
		text := strings.TrimPrefix(application(name, "apps/"+name, repo.URL(), "singly"), "---\n")
		if err := yaml.Unmarshal([]byte(text), &body); err != nil {
			return err
		}
		body["metadata"].(map[string]any)["finalizers"] = []string{"resources-finalizer.argocd.argoproj.io"}
		bodies[name] = body
	}
	err := b.oneByOne(ctx, repo, prof, series{
		name: "create", end: "until all are Synced",
		do: func(name string) error {
			return b.s.API.Do(ctx, http.MethodPost, "/api/v1/applications", bodies[name], nil)
		},
		over: func() error {
			wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
			defer cancel()
			return b.namedAre(wait, "one-", "Synced", "")
		},
	})
	if err != nil {
		return err
	}
	settle, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	return b.namedAre(settle, "one-", "Synced", "Healthy")
}

func (b *bench) deleteSingly(ctx context.Context, prof profiler) error {
	return b.oneByOne(ctx, nil, prof, series{
		name: "delete", end: "until the last one is gone",
		do: func(name string) error {
			return b.s.API.Do(ctx, http.MethodDelete, "/api/v1/applications/argocd/"+name, nil, nil)
		},
		over: func() error { return b.singlesGone(ctx) },
	})
}

// singlesGone waits until none of the applications is listed.
func (b *bench) singlesGone(ctx context.Context) error {
	began := time.Now()
	for {
		var page struct {
			Items []struct{} `json:"items"`
		}
		if err := b.s.API.Do(ctx, http.MethodGet, "/api/v1/applications?q=one-&limit=1", nil, &page); err != nil {
			return err
		}
		if len(page.Items) == 0 {
			return nil
		}
		if time.Since(began) > 3*time.Minute {
			return fmt.Errorf("applications are not gone yet")
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// A series is one kind of request for each application, one after the other.
type series struct {
	name string // of the requests
	end  string // what over waits for
	do   func(name string) error
	over func() error
}

// oneByOne runs a series and reports times, what the hub did and what the
// database did. repo is the repository whose requests are counted; nil: none.
func (b *bench) oneByOne(ctx context.Context, repo *gitserver.Repository, prof profiler, what series) error {
	db, err := b.measured(ctx)
	if err != nil {
		return err
	}
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	if err := prof.statements(ctx, "B02P-before-"+what.name+"-statements.txt"); err != nil {
		return err
	}
	busy := prof.busyProfile(ctx, "B02P-"+what.name)
	began := time.Now()
	took, err := b.forEach(what.do)
	if err != nil {
		return err
	}
	if err := what.over(); err != nil {
		return err
	}
	all := time.Since(began)
	if err := busy(); err != nil {
		return err
	}
	if err := prof.statements(ctx, "B02P-"+what.name+"-statements.txt"); err != nil {
		return err
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	cost, err := db.since(ctx)
	if err != nil {
		return err
	}
	b.add("B02P", fmt.Sprintf("%s %d applications by one request each", what.name, b.apps), percentiles(took), "")
	b.add("B02P", "  "+what.end, fmt.Sprintf("%.2f s", all.Seconds()), t.String()+"; "+cost)
	return nil
}

// A spending is what the database had done at a moment.
type spending struct {
	b                      *bench
	commits, rows, written int64
}

// measured notes what the database has done so far.
func (b *bench) measured(ctx context.Context) (spending, error) {
	out := spending{b: b}
	db, err := pgx.Connect(ctx, b.s.Postgres.Superuser("capstan"))
	if err != nil {
		return out, err
	}
	defer func() { _ = db.Close(ctx) }() // nothing was written
	err = db.QueryRow(ctx, `
		SELECT xact_commit, tup_inserted + tup_updated + tup_deleted, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
		FROM   pg_stat_database WHERE datname = 'capstan'`).Scan(&out.commits, &out.rows, &out.written)
	return out, err
}

// since says what the database has done in between.
func (s spending) since(ctx context.Context) (string, error) {
	now, err := s.b.measured(ctx)
	return fmt.Sprintf("database: %d transactions, %d rows written, %.1f MiB of log", now.commits-s.commits, now.rows-s.rows,
		float64(now.written-s.written)/(1<<20)), err
}
