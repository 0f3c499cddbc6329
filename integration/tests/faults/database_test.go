package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// probe returns the status of one of the hub's health endpoints.
func probe(ctx context.Context, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Hub.URL+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// refused checks that a write is refused with one sentence that says why.
// A connection of before that was cut may be the one that is tried first; then
// the hub says that the database cannot be reached, and to try again.
func refused(t *testing.T, name, why string) {
	t.Helper()
	ctx := within(t, waitLimit)
	var err error
	for try := true; try; {
		err = s.API.Do(ctx, http.MethodPost, "/api/v1/applications/argocd/"+name+"/sync", struct{}{}, nil)
		try = ctx.Err() == nil && err != nil && !strings.Contains(err.Error(), why) && strings.Contains(err.Error(), "the database cannot be reached")
	}
	var status *stack.StatusError
	if !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || !strings.Contains(err.Error(), why) {
		t.Errorf("a write said %v, want 503 because %s", err, why)
	}
}

func TestPostgresIsUnreachable(t *testing.T) {
	r := newRound(t, "no-database", 0)
	r.push("one", six)
	r.create(true)
	r.settled()
	r.rest()
	t.Run("FT-D6 INV-12 while the database is unreachable agents heal, requests are refused clearly, and the hub is live and not ready", func(t *testing.T) {
		if err := s.Postgres.Halt(postgres.StopImmediate); err != nil {
			t.Fatal(err)
		}
		for _, name := range six {
			r.edit(name, "one")
		}
		refused(t, "no-database", "the database cannot be reached")
		if _, err := s.API.Get(within(t, waitLimit), "no-database"); err == nil || !strings.Contains(err.Error(), "the database cannot be reached") {
			t.Errorf("a read said %v", err)
		}
		if code, err := probe(within(t, waitLimit), "/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("readyz: %d, %v", code, err)
		}
		if code, err := probe(within(t, waitLimit), "/healthz"); code != http.StatusOK {
			t.Errorf("healthz: %d, %v", code, err)
		}
		r.push("two", four)
	})
	t.Run("FT-D6 INV-5 a push meanwhile is deployed after recovery", func(t *testing.T) {
		if err := s.Postgres.Resume(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		r.settled()
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			if code, err := probe(ctx, "/readyz"); code != http.StatusOK {
				return fmt.Errorf("readyz: %d, %v", code, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("FT-D7 a read-only database: writes are refused clearly, reads succeed, nothing is incomplete", func(t *testing.T) {
		ctx := within(t, waitLimit)
		conn := database(t)
		writable := func(yes bool) {
			readOnly := map[bool]string{true: "off", false: "on"}[yes]
			for _, text := range []string{"SET default_transaction_read_only = off", "ALTER SYSTEM SET default_transaction_read_only = " + readOnly, "SELECT pg_reload_conf()"} {
				if _, err := conn.Exec(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			err := poll.Until(ctx, func(ctx context.Context) error {
				fresh, err := pgx.Connect(ctx, s.Postgres.Superuser("capstan"))
				if err != nil {
					return err
				}
				defer fresh.Close(ctx)
				var now string
				if err := fresh.QueryRow(ctx, "SHOW default_transaction_read_only").Scan(&now); err != nil || now != readOnly {
					return fmt.Errorf("read-only is %q: %v", now, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			s.SQL.Cut()
		}
		writable(false)
		refused(t, "no-database", "the database accepts no writes")
		// It may be given a connection of before that was cut, too.
		_, err := s.API.Wait(ctx, "no-database", func(stack.App) error { return nil })
		if err != nil {
			t.Errorf("a read said %v", err)
		}
		r.push("three", four)
		writable(true)
		r.settled()
		o, err := s.Clusters[clusterName].Dynamic().Resource(configMaps).Namespace("no-database").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := valueIs("three")(o); err != nil {
			t.Error(err)
		}
	})
	r.rest()
	r.collect()
	r.remove()
	r.collect()
	r.check()
	atRest(t)
}
