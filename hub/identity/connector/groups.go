package connector

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// MaxGroups is how many groups of one person are accepted.
const MaxGroups = 2000

// Groups returns the groups without empty names and duplicates, in their order.
// More than MaxGroups are refused with fault.Denied and not cut: a group that
// is left out could be one that a policy denies something to. The object names
// the provider.
func Groups(object string, groups []string) ([]string, error) {
	out := make([]string, 0, len(groups))
	seen := make(map[string]bool, len(groups))
	for _, g := range groups {
		if strings.TrimSpace(g) == "" || seen[g] {
			continue
		}
		seen[g] = true
		out = append(out, g)
	}
	if len(out) > MaxGroups {
		return nil, fault.With(fault.New(fault.Denied, "the person is a member of more than %d groups", MaxGroups),
			object, "let the provider or the connector's configuration pass on only the groups that policies name")
	}
	return out, nil
}

// Admit returns the groups that are also in allowed. The error is fault.Denied
// if allowed has groups and the person has none of them.
func Admit(object string, groups, allowed []string) ([]string, error) {
	if len(allowed) == 0 {
		return groups, nil
	}
	var out []string
	for _, g := range groups {
		if slices.Contains(allowed, g) {
			out = append(out, g)
		}
	}
	if len(out) == 0 {
		return nil, fault.With(fault.New(fault.Denied, "the person is in none of the groups that may sign in"),
			object, "add the person to one of the groups that the connector's configuration lists")
	}
	return out, nil
}
