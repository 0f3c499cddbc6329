package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// withoutTenant are the relations that no policy guards. Each is reviewed:
// the application role has no right on any table here, and they hold ids,
// hashes, names of tenants and sealed values only.
var withoutTenant = map[string]string{
	"directory.tenant":             "the list of tenants",
	"directory.session":            "hash of a session → tenant, account",
	"directory.token":              "hash of an API token → tenant, account",
	"directory.api_key":            "hash of a token that is of no account → tenant, kind, id",
	"directory.setup_link":         "hash of a setup link → tenant, roles",
	"directory.login_failure":      "hash of name and address → count",
	"directory.known_address":      "hash of account and address → tenant, account",
	"directory.join_token":         "hash of a join token → tenant, enrolment",
	"directory.certificate":        "serial → tenant, cluster, agent",
	"directory.revocation_version": "a counter",
	"directory.revocation":         "agents that are no longer good",
	"directory.authority":          "the sealed certificate authority",
	"directory.presence":           "which replica holds an agent",
	"directory.agent_attachment":   "where an agent is attached, by ids",
	"directory.replica":            "processes of the hub",
	"directory.rewind":             "cluster → how far its agent is beyond the hub",
	"directory.quarantine":         "cluster → the two clusters that use its identity",
	"directory.base_place":         "hash of host and path → tenant, application that uses a base there",
	"directory.set_place":          "hash of host and path → tenant, application set that lists what is there",
	"directory.repository_place":   "hash of host and path → tenant, repository",
	"directory.webhook_key":        "tenant, kind of sender → the secret of its webhooks, sealed with the tenant's key",
	"directory.webhook_secret":     "tenant → the secret of its webhooks, sealed with the tenant's key",
	"work.item":                    "what is due, by ids",
	"public.goose_db_version":      "the schema's version",
}

// reviewedViews run with their owner's rights and filter by tenant themselves.
var reviewedViews = map[string]string{
	"directory.my_presence":   "directory.presence of the bound tenant",
	"directory.my_rewind":     "directory.rewind of the bound tenant",
	"directory.my_quarantine": "directory.quarantine of the bound tenant",
}

// definers are the functions that run with their owner's rights.
var definers = []string{
	"directory.api_key_uses", "directory.attach", "directory.attach_agent", "directory.detach", "directory.detach_agent", "directory.drop_bases", "directory.drop_join_tokens", "directory.drop_presence",
	"directory.drop_quarantine", "directory.drop_rewind", "directory.drop_set_places", "directory.drop_token", "directory.end_account", "directory.end_api_key", "directory.end_sessions", "directory.held", "directory.note_place", "directory.note_webhook_key", "directory.note_webhook_secret", "directory.prune_audit",
	"directory.pushed_bases", "directory.put_api_key", "directory.put_bases", "directory.put_certificate", "directory.put_join_token", "directory.put_quarantine", "directory.put_rewind", "directory.put_set_places", "directory.put_token",
	"directory.revoke_agent", "directory.sessions_of",
	"directory.token_uses", "work.enlist", "work.enqueue", "work.good_leases", "work.held", "work.look_again", "work.purge_tenant", "work.refresh_statistic", "work.refresh_statistics", "work.still_leased", "work.waiting",
}

type relation struct {
	Name   string
	Kind   string
	Secure bool
	Forced bool
	Owner  string
}

const selectRelations = `
	SELECT n.nspname || '.' || c.relname, c.relkind::text, c.relrowsecurity, c.relforcerowsecurity, pg_get_userbyid(c.relowner)
	FROM   pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE  c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
	ORDER  BY 1`

func relations(t *testing.T, conn *pgx.Conn) []relation {
	t.Helper()
	rows, err := conn.Query(t.Context(), selectRelations)
	check(t, err)
	return must[[]relation](t)(pgx.CollectRows(rows, pgx.RowToStructByPos[relation]))
}

// tenantTables are those that the policy must guard.
func tenantTables(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	var out []string
	for _, r := range relations(t, conn) {
		if withoutTenant[r.Name] == "" && reviewedViews[r.Name] == "" {
			out = append(out, r.Name)
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d tables of tenants", len(out))
	}
	return out
}

func queryOne[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	conn := storetest.Connect(t, storetest.Database(t).Superuser)
	const policy = "(tenant_id = (NULLIF(current_setting('app.tenant_id'::text, true), ''::text))::uuid)"
	for _, r := range relations(t, conn) {
		t.Run("ISO-1 "+r.Name, func(t *testing.T) {
			if r.Owner != "capstan_owner" {
				t.Errorf("it belongs to %s", r.Owner)
			}
			for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"} {
				app := queryOne[bool](t, conn, `SELECT has_table_privilege('capstan_app', $1, $2)`, r.Name, right)
				system := queryOne[bool](t, conn, `SELECT has_table_privilege('capstan_system', $1, $2)`, r.Name, right)
				switch {
				case withoutTenant[r.Name] != "" && app:
					t.Errorf("the application role may %s what no policy guards", right)
				case withoutTenant[r.Name] == "" && system:
					t.Errorf("the system role may %s what belongs to tenants", right)
				case right == "TRUNCATE" && (app || system):
					t.Error("TRUNCATE passes by every policy")
				case reviewedViews[r.Name] != "" && app && right != "SELECT":
					t.Errorf("the application role may %s a view", right)
				}
			}
			if withoutTenant[r.Name] != "" || reviewedViews[r.Name] != "" {
				return
			}
			if r.Kind != "r" && r.Kind != "p" {
				t.Fatalf("kind %q is in no reviewed list", r.Kind)
			}
			if !r.Secure || !r.Forced {
				t.Errorf("row security enabled %v, forced %v", r.Secure, r.Forced)
			}
			if n := queryOne[int](t, conn, `SELECT count(*) FROM pg_policy WHERE polrelid = $1::regclass`, r.Name); n != 1 {
				t.Errorf("%d policies, want exactly one", n)
			}
			good := queryOne[bool](t, conn, `
				SELECT coalesce(bool_and(polpermissive AND polcmd = '*' AND polroles = '{0}' AND pg_get_expr(polqual, polrelid) = $2
				       AND pg_get_expr(polwithcheck, polrelid) = $2), false)
				FROM pg_policy WHERE polrelid = $1::regclass`, r.Name, policy)
			if !good {
				t.Error("its policy is not the tenant's for reading and writing alike")
			}
			if !queryOne[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'tenant_id' AND attnotnull AND atttypid = 'uuid'::regtype)`, r.Name) {
				t.Error("there is no tenant_id uuid NOT NULL")
			}
			loose := queryOne[int](t, conn, `
				SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
				WHERE i.indrelid = $1::regclass AND a.attname <> 'tenant_id'`, r.Name)
			if loose > 0 {
				t.Errorf("%d keys or indexes do not begin with the tenant", loose)
			}
			crossing := queryOne[int](t, conn, `
				SELECT count(*) FROM pg_constraint c
				WHERE c.conrelid = $1::regclass AND c.contype = 'f'
				  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attnum = c.conkey[1] AND a.attname = 'tenant_id')`, r.Name)
			if crossing > 0 {
				t.Errorf("%d foreign keys do not begin with the tenant", crossing)
			}
		})
	}
	t.Run("ISO-1 functions with their owner's rights are reviewed", func(t *testing.T) {
		rows, err := conn.Query(t.Context(), `
			SELECT n.nspname || '.' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
			WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`)
		check(t, err)
		got := must[[]string](t)(pgx.CollectRows(rows, pgx.RowTo[string]))
		if !slices.Equal(got, definers) {
			t.Errorf("functions with their owner's rights: %v, reviewed: %v", got, definers)
		}
		open := queryOne[int](t, conn, `
			SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
			WHERE n.nspname IN ('directory', 'work')
			  AND (p.proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig)
			       OR EXISTS (SELECT FROM aclexplode(p.proacl) x WHERE x.grantee = 0))`)
		if open > 0 {
			t.Errorf("%d functions have an open search path or may be called by everyone", open)
		}
	})
	t.Run("ISO-1 the roles are bounded", func(t *testing.T) {
		n := queryOne[int](t, conn, `
			SELECT count(*) FROM pg_roles WHERE rolname IN ('capstan_app', 'capstan_system')
			AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole AND NOT rolcreatedb`)
		if n != 2 {
			t.Errorf("%d of the two roles are bounded", n)
		}
	})
}

// sums returns a checksum of each table's rows of a tenant.
func sums(t *testing.T, conn *pgx.Conn, tables []string, tenant hub.TenantID) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, table := range tables {
		out[table] = queryOne[string](t, conn, `SELECT count(*) || ' ' || coalesce(md5(string_agg(x::text, '|' ORDER BY x::text)), '') FROM `+table+` x WHERE tenant_id = $1`, tenant)
		if strings.HasPrefix(out[table], "0 ") {
			t.Fatalf("the test puts no row into %s: teach world_test.go to do so", table)
		}
	}
	return out
}

func columnsOf(t *testing.T, conn *pgx.Conn, table string) string {
	t.Helper()
	return queryOne[string](t, conn, `
		SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table)
}

// attempt runs one statement bound to a tenant and rolls it back.
func attempt(t *testing.T, conn *pgx.Conn, tenant, sql string, args ...any) (int64, error) {
	t.Helper()
	ctx := t.Context()
	tx, err := conn.Begin(ctx)
	check(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SELECT set_config('app.tenant_id', $1, true)`, tenant); err != nil {
		t.Fatal(err)
	}
	tag, err := tx.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

func TestNoRowIsReachedFromAnotherTenant(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	a, b := build(t, db, "alpha", "canary-alpha"), build(t, db, "beta", "canary-beta")
	super, app := storetest.Connect(t, urls.Superuser), storetest.Connect(t, urls.App)
	tables := tenantTables(t, super)
	before := sums(t, super, tables, b.tenant)
	for _, table := range tables {
		columns := columnsOf(t, super, table)
		foreign := queryOne[string](t, super, `SELECT row_to_json(x)::text FROM `+table+` x WHERE tenant_id = $1 LIMIT 1`, b.tenant)
		insert := `INSERT INTO ` + table + ` (` + columns + `) SELECT ` + columns + ` FROM json_populate_record(NULL::` + table + `, $1::json)`
		mine := queryOne[int64](t, super, `SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, a.tenant)

		t.Run("ISO-1 read "+table, func(t *testing.T) {
			if n, err := attempt(t, app, string(a.tenant), `SELECT * FROM `+table+` WHERE tenant_id = $1`, b.tenant); n != 0 || err != nil {
				t.Errorf("SELECT of foreign rows gave %d rows, %v", n, err)
			}
		})
		t.Run("ISO-4 row security holds without any predicate "+table, func(t *testing.T) {
			if n, err := attempt(t, app, string(a.tenant), `SELECT * FROM `+table); n != mine || err != nil {
				t.Errorf("SELECT gave %d rows, want the tenant's own %d: %v", n, mine, err)
			}
			if n, err := attempt(t, app, string(a.tenant), `DELETE FROM `+table); err == nil && n != mine {
				t.Errorf("DELETE took %d rows, want at most the tenant's own %d", n, mine)
			}
		})
		for act, sql := range map[string]string{
			"update": `UPDATE ` + table + ` SET tenant_id = tenant_id WHERE tenant_id = $1`,
			"steal":  `UPDATE ` + table + ` SET tenant_id = '` + string(a.tenant) + `' WHERE tenant_id = $1`,
			"delete": `DELETE FROM ` + table + ` WHERE tenant_id = $1`,
			"merge":  `MERGE INTO ` + table + ` x USING (SELECT $1::uuid AS id) s ON x.tenant_id = s.id WHEN MATCHED THEN DELETE`,
		} {
			t.Run("ISO-1 "+act+" "+table, func(t *testing.T) {
				if n, err := attempt(t, app, string(a.tenant), sql, b.tenant); n != 0 {
					t.Errorf("touched %d foreign rows, %v", n, err)
				}
			})
		}
		for act, sql := range map[string]string{
			"insert":         insert,
			"upsert":         insert + ` ON CONFLICT DO NOTHING`,
			"insert changed": strings.Replace(insert, "SELECT "+columns, "SELECT "+strings.ReplaceAll(columns, "tenant_id", "'"+string(b.tenant)+"'::uuid"), 1),
		} {
			t.Run("ISO-1 "+act+" "+table, func(t *testing.T) {
				_, err := attempt(t, app, string(a.tenant), sql, foreign)
				var refusal *pgconn.PgError
				if !errors.As(err, &refusal) || refusal.Code != "42501" {
					t.Errorf("a foreign row: error %v, want a refusal by row security", err)
				}
			})
		}
		t.Run("ISO-1 give away "+table, func(t *testing.T) {
			if _, err := attempt(t, app, string(a.tenant), `UPDATE `+table+` SET tenant_id = $1`, b.tenant); err == nil {
				t.Error("own rows were moved to another tenant")
			}
		})
	}
	if after := sums(t, super, tables, b.tenant); !reflect.DeepEqual(before, after) {
		t.Errorf("ISO-1 the other tenant's rows changed: %v, before %v", after, before)
	}
}

func TestNothingIsVisibleWithoutATenant(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "alpha", "canary-alpha")
	super, app := storetest.Connect(t, urls.Superuser), storetest.Connect(t, urls.App)
	settings := map[string]string{
		"empty": "", "malformed": "alpha", "SQL": "' OR true --", "cast": string(w.tenant) + "'::uuid OR true --",
		"nobody": string(hub.NewID[hub.TenantID]()), "wildcard": "%",
	}
	for _, table := range append(tenantTables(t, super), "directory.my_presence") {
		t.Run("ISO-2 no setting "+table, func(t *testing.T) {
			if n := queryOne[int](t, storetest.Connect(t, urls.App), `SELECT count(*) FROM `+table); n != 0 {
				t.Errorf("%d rows are visible", n)
			}
		})
		for name, setting := range settings {
			t.Run("ISO-2 "+name+" setting "+table, func(t *testing.T) {
				if n, err := attempt(t, app, setting, `SELECT * FROM `+table); n != 0 {
					t.Errorf("%d rows are visible, %v", n, err)
				}
				if n, _ := attempt(t, app, setting, `DELETE FROM `+table); n != 0 {
					t.Errorf("%d rows could be deleted", n)
				}
			})
		}
	}
	for name, setting := range settings {
		t.Run("ISO-2 InTenant with "+name+" id", func(t *testing.T) {
			err := db.InTenant(t.Context(), hub.TenantID(setting), func(context.Context, *store.Tenant) error {
				t.Error("the function ran")
				return nil
			})
			if fault.KindOf(err) != fault.Missing {
				t.Errorf("error %v, want Missing", err)
			}
		})
		t.Run("ISO-2 functions with "+name+" setting", func(t *testing.T) {
			for _, call := range []string{
				`SELECT work.enqueue(ARRAY['refresh'], ARRAY[gen_random_uuid()], ARRAY[now()], ARRAY[false])`,
				`SELECT directory.put_token(decode(repeat('00', 32), 'hex'), gen_random_uuid(), gen_random_uuid(), NULL)`,
				`SELECT directory.attach(gen_random_uuid(), 's', 'r', now())`,
			} {
				if _, err := attempt(t, app, setting, call); err == nil {
					t.Errorf("%s did something", call)
				}
			}
		})
	}
}

func TestConnectionsNeverCarryATenantOver(t *testing.T) {
	t.Parallel()
	cfg := storetest.Database(t).Config()
	cfg.MaxConns = 8
	db := storetest.OpenURLs(t, cfg)
	var tenants []hub.TenantID
	for i := range 10 {
		name := fmt.Sprintf("tenant-%d", i)
		id := storetest.Tenant(t, db, name)
		storetest.In(t, db, id, func(ctx context.Context, tx *store.Tenant) error {
			for range 5 {
				if _, err := tx.CreateUser(ctx, hub.User{Name: fmt.Sprintf("%s-%d", id, rand.Int64())}, "x"); err != nil {
					return err
				}
			}
			return nil
		})
		tenants = append(tenants, id)
	}
	var wg sync.WaitGroup
	for worker := range 200 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 10 {
				disturbed(t, db, tenants[r.IntN(len(tenants))], r)
			}
		})
	}
	wg.Wait()
	settings, err := db.Settings(t.Context())
	check(t, err)
	for _, s := range settings {
		if s != "" {
			t.Errorf("ISO-3 a connection still carries tenant %q", s)
		}
	}
}

// disturbed works in a tenant and is cancelled, fails or panics at random.
func disturbed(t *testing.T, db *store.DB, id hub.TenantID, r *rand.Rand) {
	ctx := t.Context()
	if r.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	run := db.InTenant
	if r.IntN(2) == 0 {
		run = db.ReadTenant
	}
	defer func() { _ = recover() }()
	_ = run(ctx, id, func(ctx context.Context, tx *store.Tenant) error {
		for range 1 + r.IntN(3) {
			users, err := tx.Users(ctx)
			if err != nil {
				return err
			}
			for _, u := range users {
				if !strings.HasPrefix(u.Name, string(id)) {
					t.Errorf("ISO-3 tenant %s sees %q", id, u.Name)
				}
			}
			switch r.IntN(8) {
			case 0:
				panic("on purpose")
			case 1:
				return errors.New("on purpose")
			}
		}
		return nil
	})
}

// foreigner makes arguments for any method out of another tenant's ids and
// names.
// TestEveryMethodKeepsToItsTenant calls every method of Tenant as one tenant
// with all ids and names of another: once as it is, and once with row
// security switched off, so that only the predicates protect.
