package transact

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// PolicyOf returns what the rights of a tenant with these settings and projects
// are made of.
func PolicyOf(all []hub.Setting, projects []hub.Project) access.Policy {
	p := access.Policy{Values: map[string]string{}, Projects: projects}
	cm := map[string]string{}
	for _, s := range all {
		switch s.Map {
		case rbac.Map:
			p.Values[s.Key] = s.Value
		case hub.SettingsMap:
			cm[s.Key] = s.Value
		}
	}
	p.RollbackApart, p.Inherits = settings.RollbackApart(cm), settings.Inherits(cm)
	return p
}

// AccountRoles returns the roles of the tenant's local accounts by name.
func (r *Reader) AccountRoles(ctx context.Context) (map[string][]string, error) {
	users, err := r.Users(ctx)
	out := make(map[string][]string, len(users))
	for _, u := range users {
		out[u.Name] = u.Roles
	}
	return out, err
}
