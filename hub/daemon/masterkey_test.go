package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/secret"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// rows are all rows of all tables, in text.
func rows(t *testing.T, urls storetest.URLs) map[string]string {
	t.Helper()
	conn := storetest.Connect(t, urls.Superuser)
	var tables []string
	err := conn.QueryRow(t.Context(), `
		SELECT array_agg(n.nspname || '.' || c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE  c.relkind = 'r' AND n.nspname IN ('public', 'directory', 'work')`).Scan(&tables)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, table := range tables {
		var text *string
		if err := conn.QueryRow(t.Context(), `SELECT string_agg(x::text, chr(10) ORDER BY x::text) FROM `+table+` x`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		if text != nil {
			out[table] = *text
		}
	}
	return out
}

// A hub whose master key was lost or exchanged says so and changes nothing.
func TestOtherMasterKey(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	dir := t.TempDir()
	config := func(key string) Config {
		text, err := json.Marshal(map[string]any{
			"database": map[string]any{"app": urls.App, "system": urls.System, "owner": urls.Owner},
			"stateDir": filepath.Join(dir, "state"), "masterKey": key, "listen": map[string]any{"http": "127.0.0.1:0", "link": "127.0.0.1:0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := load(t, string(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	right, other := filepath.Join(dir, "right"), filepath.Join(dir, "other")
	for _, file := range []string{right, other} {
		if _, err := secret.Create(file); err != nil {
			t.Fatal(err)
		}
	}
	good := config(right)
	if _, err := SetupLink(t.Context(), good); err != nil { // makes the first tenant
		t.Fatal(err)
	}
	db, err := open(t.Context(), good, Logger(good.Log))
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := db.System().TenantByName(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	err = db.InTenant(t.Context(), tenant.ID, func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.PutRepository(ctx, hub.Repository{URL: "https://git.test/a", Registered: true}, &hub.Credential{Password: "kept secret"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	before := rows(t, urls)
	starts := map[string]func(Config) error{
		"serve":      func(c Config) error { return Run(t.Context(), c) },
		"setup-link": func(c Config) error { _, err := SetupLink(t.Context(), c); return err },
		"restored":   func(c Config) error { _, err := Restored(t.Context(), c); return err },
	}
	for name, key := range map[string]string{"another": other, "a lost": filepath.Join(dir, "nothing"), "an emptied": filepath.Join(dir, "empty")} {
		if name == "an emptied" {
			if err := os.WriteFile(key, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for command, start := range starts {
			t.Run("FT-O3 "+command+" with "+name+" master key fails clearly and overwrites nothing", func(t *testing.T) {
				err := start(config(key))
				e, ok := fault.As(err)
				if !ok || !strings.Contains(strings.ToLower(e.Object), "master key") || e.Cause == "" || name != "an emptied" && e.Fix == "" {
					t.Errorf("it says: %v", err)
				}
				if diff := cmp.Diff(before, rows(t, urls)); diff != "" {
					t.Errorf("rows have changed: %s", diff)
				}
				if _, err := os.Stat(filepath.Join(dir, "nothing")); err == nil {
					t.Error("a new key was made in the place of the lost one")
				}
			})
		}
	}
	t.Run("FT-O3 with the former key everything is there", func(t *testing.T) {
		db, err := open(t.Context(), good, Logger(good.Log))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.InTenant(t.Context(), tenant.ID, func(ctx context.Context, tx *store.Tenant) error {
			repo, err := tx.RepositoryByURL(ctx, "https://git.test/a")
			if err != nil {
				return err
			}
			cred, err := tx.Credential(ctx, repo.ID)
			if cred.Password != "kept secret" {
				t.Error("the credential is lost")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
