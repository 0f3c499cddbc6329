package store_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// insufficientPrivilege is how Postgres names a refusal by rights.
const insufficientPrivilege = "42501"

// TestRightsOfRoles has whoever got hold of a connection of the hub try what no
// hub does.
func TestRightsOfRoles(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	for role, url := range map[string]string{"app": urls.App, "system": urls.System} {
		conn := storetest.Connect(t, url)
		for what, statements := range map[string][]string{
			"changes no schema": {
				`CREATE TABLE public.spare (x integer)`, `CREATE TABLE directory.spare (x integer)`, `CREATE SCHEMA spare`, `CREATE VIEW public.spare AS SELECT 1`,
				`CREATE FUNCTION public.spare() RETURNS integer LANGUAGE sql AS 'SELECT 1'`, `CREATE EXTENSION dblink`, `CREATE SEQUENCE public.spare`,
				`ALTER TABLE application ADD COLUMN spare integer`, `DROP TABLE application`, `TRUNCATE application`, `CREATE INDEX ON application (id)`,
			},
			"lifts no fence between tenants": {
				`ALTER TABLE application DISABLE ROW LEVEL SECURITY`, `ALTER TABLE application NO FORCE ROW LEVEL SECURITY`, `ALTER TABLE application DISABLE TRIGGER ALL`,
				`CREATE POLICY spare ON application USING (true)`, `ALTER ROLE CURRENT_USER BYPASSRLS`, `ALTER TABLE application OWNER TO CURRENT_USER`, `SET session_replication_role = replica`,
			},
			"becomes nobody else": {
				`SET ROLE capstan_owner`, `SET SESSION AUTHORIZATION capstan_owner`, `CREATE ROLE spare SUPERUSER`, `ALTER ROLE capstan_owner PASSWORD 'spare'`, `GRANT capstan_owner TO CURRENT_USER`,
			},
			"reads neither the server's files nor its secrets": {
				`SELECT rolpassword FROM pg_authid`, `SELECT pg_read_file('/etc/passwd')`, `SELECT pg_ls_dir('.')`, `COPY (SELECT 1) TO PROGRAM 'true'`, `COPY (SELECT 1) TO '/tmp/spare'`,
				`SELECT lo_import('/etc/passwd')`, `SET log_statement = 'none'`, `SELECT * FROM pg_hba_file_rules`,
			},
		} {
			t.Run("SEC-J3 the role "+role+" "+what, func(t *testing.T) {
				for _, statement := range statements {
					tx, err := conn.Begin(t.Context())
					check(t, err)
					_, err = tx.Exec(t.Context(), statement)
					var refusal *pgconn.PgError
					if !errors.As(err, &refusal) || refusal.Code != insufficientPrivilege {
						t.Errorf("%s: %v", statement, err)
					}
					check(t, tx.Rollback(t.Context()))
				}
			})
		}
	}
}
