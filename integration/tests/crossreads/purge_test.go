package crossreads_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// A search finds what is left of a tenant: rows of all tables with one of the
// texts, and files of the hub with one in their path or contents.
type search struct {
	t     *testing.T
	db    *pgx.Conn
	state string // the hub's folder of mirrors and archives
}

// rows returns how many rows of each table have a text, as text or in bytes. Of
// the audit log of the platform's own tenant it counts none.
func (x *search) rows(ctx context.Context, text, home string) (map[string]int, error) {
	tables, err := x.db.Query(ctx, `
		SELECT c.oid::regclass::text, EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
		FROM   pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE  c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')`)
	if err != nil {
		return nil, err
	}
	type table struct {
		name string
		owns bool // its rows have a tenant
	}
	all, err := pgx.CollectRows(tables, func(row pgx.CollectableRow) (v table, err error) {
		return v, row.Scan(&v.name, &v.owns)
	})
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, v := range all {
		statement := `SELECT count(*) FROM ` + v.name + ` t WHERE (strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0)`
		args := []any{text, hex.EncodeToString([]byte(text))}
		if v.owns && strings.HasPrefix(v.name, "audit") {
			statement, args = statement+` AND t.tenant_id::text <> $3`, append(args, home)
		}
		var n int
		if err := x.db.QueryRow(ctx, statement, args...).Scan(&n); err != nil {
			return nil, fmt.Errorf("search %s: %w", v.name, err)
		}
		if n > 0 {
			found[v.name] = n
		}
	}
	return found, nil
}

// files returns the files with one of the texts in their path or contents.
func (x *search) files(texts ...string) (found []string, err error) {
	err = filepath.WalkDir(x.state, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		in := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(path, text) })
		if !in && d.Type().IsRegular() {
			body, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			in = slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(body, []byte(text)) })
		}
		if in {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

func TestPurge(t *testing.T) {
	x := newSide(t, "gone")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	db, err := pgx.Connect(ctx, s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	searched := &search{t, db, filepath.Join(s.Hub.Dir(), "state")}
	var id, home string
	if err := db.QueryRow(ctx, `SELECT (SELECT id::text FROM directory.tenant WHERE name = 'gone'), (SELECT id::text FROM directory.tenant WHERE name = 'default')`).Scan(&id, &home); err != nil {
		t.Fatal(err)
	}
	var before []string
	if err := poll.Until(ctx, func(context.Context) error {
		if before, err = searched.files(id, x.canary); err == nil && len(before) == 0 {
			err = errors.New("no file of the tenant is on the hub's disk yet")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := searched.rows(ctx, id, home)
	if err != nil {
		t.Fatal(err)
	}
	canaries, err := searched.rows(ctx, x.canary, home)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 20 || len(canaries) < 10 {
		t.Fatalf("the tenant has rows in %v, canaries in %v: that is too little to prove anything", rows, canaries)
	}
	t.Logf("before: %d tables with the id, %d with a canary, %d files", len(rows), len(canaries), len(before))

	if _, err := s.API.CLI(ctx, "", "tenant", "delete", "gone", "--confirm", "gone"); err != nil {
		t.Fatal(err)
	}
	// The grace period is at least an hour: it is over now.
	if tag, err := db.Exec(ctx, `UPDATE directory.tenant SET purge_at = now() - interval '1 second' WHERE id = $1 AND purge_at > now()`, id); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	t.Run("ISO-10 after the grace period no row of any table and no file of the hub has the tenant's id or texts", func(t *testing.T) {
		if err := poll.Until(ctx, func(ctx context.Context) error {
			for _, text := range []string{id, x.canary} {
				left, err := searched.rows(ctx, text, home)
				if err != nil {
					return err
				}
				if len(left) > 0 {
					return fmt.Errorf("%s is left in the tables %v", text, left)
				}
			}
			left, err := searched.files(id, x.canary)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%d files are left, such as %s", len(left), left[0])
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("ISO-10 INV-11 the platform's audit log says what was removed, and has nothing that was in it", func(t *testing.T) {
		out, err := s.API.CLI(ctx, "", "audit", "list", "--action", "purge", "-o", "json")
		if err != nil || !strings.Contains(out, id) || !strings.Contains(out, "the grace period of its deletion is over") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err = s.API.CLI(ctx, "", "audit", "list", "-o", "json"); err != nil || strings.Contains(out, x.canary) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("ISO-10 its tokens are good for nothing, and other tenants go on", func(t *testing.T) {
		if answer := string(x.do(ctx, "GET", "/api/v1/applications", nil)); !strings.Contains(answer, "CAP-") || strings.Contains(answer, x.canary) {
			t.Errorf("its admin reads %s", answer)
		}
		if _, err := s.API.CLI(ctx, "", "app", "list"); err != nil {
			t.Error(err)
		}
	})
}
