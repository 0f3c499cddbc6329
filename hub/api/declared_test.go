package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// SEC-D1: what an operation declares in the document is what the table of
// rights says and TestRightsMatrix tries: for each built-in role, the declared
// resource and action give the right that the operation asks for. An operation
// that declares another right than it checks differs for some role.
func TestDeclaredRights(t *testing.T) {
	t.Parallel()
	compiled := access.Compile("0190b2c4-0000-7000-8000-000000000001", access.Policy{})
	resources := []string{access.Applications, access.Projects, access.Clusters, access.Repositories, access.Certificates, access.Accounts, access.Audit, access.Settings, access.Tenants}
	words := map[string]string{"public": "none", "self": "all", "apply": "all", "stream": "all"}
	table := rights()
	for _, m := range methods(t) {
		listed, ok := table[m.id]
		if !ok {
			t.Errorf("operation %s has no row in the table of rights", m.id)
			continue
		}
		if want, special := words[m.resource]; special {
			if listed != want {
				t.Errorf("%s declares %s, which is for %q, and the table says %q", m.id, m.resource, want, listed)
			}
			continue
		}
		if !slices.Contains(resources, m.resource) {
			t.Errorf("%s declares the resource %q, which no policy knows", m.id, m.resource)
			continue
		}
		for _, role := range []string{hub.RoleReadOnly, hub.RoleTenantAdmin, hub.RolePlatformAdmin} {
			index := compiled.For(access.Subject{User: "somebody", Roles: []string{role}})
			if may, lastSent := index.Any(m.resource, m.action), slices.Contains(strings.Fields(listed), role); may != lastSent {
				t.Errorf("%s declares %s %s, which %s has: %v; the table says %v", m.id, m.resource, m.action, role, may, lastSent)
			}
		}
	}
}
