package store_test

import (
	"context"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// statements evaluates every constant of the package that is SQL.
func statements(t *testing.T) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	packages, err := parser.ParseDir(fset, ".", nil, parser.SkipObjectResolution) //nolint:staticcheck // build tags do not matter here
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, f := range packages["store"].Files {
		if !strings.HasSuffix(fset.Position(f.Package).Filename, "_test.go") {
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil), Error: func(error) {}, IgnoreFuncBodies: true, FakeImportC: true}
	conf.Importer = nothing{}
	pkg, _ := conf.Check("store", fset, files, nil)
	out := map[string]string{}
	part := map[string]bool{"claimHead": true, "selectCounts": true} // beginnings of other statements
	verb := regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s`)
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() != constant.String {
			continue
		}
		if text := constant.StringVal(c.Val()); verb.MatchString(text) && !part[name] {
			out[name] = numbered(t, text)
		}
	}
	return out
}

// numbered replaces named parameters of a statement by numbered ones.
func numbered(t *testing.T, text string) string {
	t.Helper()
	if !regexp.MustCompile(`@[a-z]`).MatchString(text) {
		return text
	}
	text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), nil, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// nothing imports nothing: string constants need no other package.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return types.NewPackage(path, path[strings.LastIndex(path, "/")+1:]), nil
}

// bySystem are the statements that the system role runs; all others are run
// by the application role.
var bySystem = regexp.MustCompile(`directory\.(tenant|session|token|setup_link|login_failure|known_address|join_token|certificate|revocation|authority|presence|agent_attachment|replica|repository_place|base_place|set_place)\b|work\.(item|put|lease)|goose_db_version`)

func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	all := statements(t)
	if len(all) < 100 {
		t.Fatalf("found only %d statements: the search for them is broken", len(all))
	}
	urls := storetest.Database(t)
	app, system := storetest.Connect(t, urls.App), storetest.Connect(t, urls.System)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		conn := app
		if bySystem.MatchString(strings.NewReplacer("directory.token_uses", "", "directory.api_key_uses", "", "directory.sessions_of", "").Replace(all[name])) {
			conn = system
		}
		if name == "createApp" || name == "createSys" {
			continue
		}
		if _, err := conn.Prepare(context.WithoutCancel(t.Context()), name, all[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tenantTables are the tables whose statements must name the tenant.
var tenantTable = regexp.MustCompile(`(?i)(?:FROM|JOIN|INTO|UPDATE|USING)\s+(organisation|account|api_token|project|repository|repository_template|deferred_credential|host_key|ref|cluster|enrolment|application|application_status|app_source|condition|object|snapshot|log_head|log_row|desired_head|log_ack|tombstone|operation|history|observed|resource|change|audit_head|audit_record|idempotency|role_token|exchanged_token|scim_token|scim_user|scim_group|scim_member|setting|setting_version)\b`)

func TestEveryStatementNamesTheTenant(t *testing.T) {
	t.Parallel()
	for name, text := range statements(t) {
		tables := len(tenantTable.FindAllString(text, -1))
		if tables == 0 {
			continue
		}
		if named := strings.Count(text, "tenant_id"); named < tables {
			t.Errorf("ISO-4 %s names %d tables of tenants and the tenant only %d times", name, tables, named)
		}
		if !strings.Contains(text, "$1") {
			t.Errorf("ISO-4 %s has no parameter for the tenant", name)
		}
	}
}
