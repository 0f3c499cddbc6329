package caching_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// Somebody who writes into the database beside the hub puts the objects of one
// application into the stored render of another.
func TestStoredRendersThatWereChanged(t *testing.T) {
	repo, err := s.Repository(within(t), "poisoned", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	commit, err := repo.Commit(within(t), "begin", map[string]string{"README": "0", "mine/a.yaml": configMap("poison-mine", "1"), "theirs/a.yaml": configMap("poison-theirs", "1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(within(t), application("poison-mine", "", source(repo, "mine"))+application("poison-theirs", "", source(repo, "theirs"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"poison-mine", "poison-theirs"} {
		if _, err := s.API.CLI(within(t), "", "app", "get", name, "--refresh"); err != nil {
			t.Fatal(err)
		}
	}
	shows(t, commit, "poison-mine", "poison-theirs")
	manifests := func() string {
		t.Helper()
		var raw json.RawMessage
		if err := s.API.Do(within(t), http.MethodGet, "/api/v1/applications/argocd/poison-mine/manifests", nil, &raw); err != nil {
			return err.Error()
		}
		return string(raw)
	}
	if !strings.Contains(manifests(), "poison-mine") {
		t.Fatalf("it has other manifests: %s", manifests())
	}
	conn, err := pgx.Connect(within(t), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	repo.Break(gitserver.Fault{Status: http.StatusServiceUnavailable}) // a poll would render it again before it is looked at
	if err := poll.Until(within(t), func(ctx context.Context) error {  // so would a refresh that was asked for
		var waiting int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM work.item WHERE kind = 'refresh'`).Scan(&waiting)
		if err == nil && waiting > 0 {
			err = fmt.Errorf("%d applications are to be refreshed", waiting)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Stop(); err != nil { // what it has in memory is its own
		t.Fatal(err)
	}
	tag, err := conn.Exec(within(t), `
		UPDATE snapshot s SET (objects, digests, inputs, mac) = (
			SELECT x.objects, x.digests, x.inputs, x.mac FROM snapshot x
			JOIN   application_status st ON st.target_id = x.id JOIN application a ON a.id = st.application_id WHERE a.name = 'poison-theirs')
		WHERE  s.application_id = (SELECT a.id FROM application a WHERE a.name = 'poison-mine')`) // also one that was rendered at the same time
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatal(tag, err)
	}
	if err := s.Hub.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	t.Run("FT-G10 SEC-J2 they are not shown", func(t *testing.T) {
		if got := manifests(); strings.Contains(got, "poison-theirs\\\"") {
			t.Errorf("the manifests of another application: %s", got)
		}
	})
	t.Run("FT-G10 SEC-J2 they are not synced", func(t *testing.T) {
		out, err := s.API.CLI(within(t), "", "app", "sync", "poison-mine", "--async")
		if err == nil || !strings.Contains(out+err.Error(), "damaged or gone") {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("FT-G10 SEC-J2 INV-7 the application is rendered again, and no other is", func(t *testing.T) {
		repo.Break(gitserver.Fault{})
		before := counts{} // of a hub that has just started: it may be rendered before the push
		shows(t, push(t, repo, "README", "1"), "poison-mine", "poison-theirs")
		if got := before.since(t); got != 1 {
			t.Errorf("%d renders, want one", got)
		}
		if got := manifests(); !strings.Contains(got, "poison-mine") || strings.Contains(got, "poison-theirs\\\"") {
			t.Errorf("its manifests are %s", got)
		}
	})
}
