package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// SEC-D1: what an operation declares in the document is what the tables of the
// matrix say and TestRightsMatrix tries: for each built-in role, the declared
// resource and action give the right that the operation asks for. An operation
// that declares another right than it checks differs for some role.
func TestDeclaredRights(t *testing.T) {
	t.Parallel()
	compiled := access.Compile("0190b2c4-0000-7000-8000-000000000001", access.Policy{})
	words := map[string]string{"public": "none", "self": "all", "apply": "all", "stream": "all"}
	table := rights()
	for _, m := range methods(t) {
		who, known := allowed(m)
		if !known {
			t.Errorf("operation %s has the right %s %s, of which the tables of the matrix say nothing", m.id, m.resource, m.action)
			continue
		}
		if want, special := words[m.resource]; special {
			if who != want {
				t.Errorf("%s declares %s, which is for %q, and the table says %q", m.id, m.resource, want, who)
			}
			continue
		}
		row, listed := table[m.id]
		for _, role := range []string{hub.RoleReadOnly, hub.RoleTenantAdmin, hub.RolePlatformAdmin} {
			index := compiled.For(access.Subject{User: "somebody", Roles: []string{role}})
			may := index.Any(m.resource, m.action)
			if says := slices.Contains(strings.Fields(who), role); may != says {
				t.Errorf("%s declares %s %s, which %s has: %v; the table of roles says %v", m.id, m.resource, m.action, role, may, says)
			}
			if says := slices.Contains(strings.Fields(row), role); listed && may != says {
				t.Errorf("%s declares %s %s, which %s has: %v; the row of rights says %v", m.id, m.resource, m.action, role, may, says)
			}
		}
	}
}
