package validation

import (
	"fmt"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// roles are those that an account may have.
func roles() []string { return []string{hub.RolePlatformAdmin, hub.RoleTenantAdmin, hub.RoleReadOnly} }

// CheckRoles refuses roles that do not exist.
func CheckRoles(given []string) error {
	for i, r := range given {
		if !slices.Contains(roles(), r) {
			return fault.With(fault.New(fault.Invalid, "there is no role %q", Shorten(r)), "", "choose among platform-admin, tenant-admin and readonly")
		}
		if slices.Index(given, r) != i {
			return fault.New(fault.Invalid, "role %q is there twice", r)
		}
	}
	return nil
}

// CheckUsername refuses a name that could be mistaken for a role or a group.
func CheckUsername(name string) error {
	if len(name) <= 64 && word(name, "-_.@", false) {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "user name %q is not usable", Shorten(name)), "",
		"use up to 64 lower-case letters, digits, -, _, . and @, with a letter or digit at both ends")
}

// CheckCapabilities refuses what an account cannot be used for. Nil is all that
// there is. An account that signs in needs a password; one without is used by
// tokens alone.
func CheckCapabilities(given []string, password bool) error {
	for i, c := range given {
		if !slices.Contains(hub.Capabilities(), c) {
			return fault.With(fault.New(fault.Invalid, "there is no capability %q", Shorten(c)), "", "choose among apiKey and login")
		}
		if slices.Index(given, c) != i {
			return fault.New(fault.Invalid, "capability %q is there twice", c)
		}
	}
	if signsIn := given == nil || slices.Contains(given, hub.CanSignIn); signsIn && !password {
		return fault.With(fault.New(fault.Invalid, "an account that signs in needs a password"), "", "give one, or the capability apiKey alone")
	}
	return nil
}

// tokenWarnings say that tokens of Argo CD are not accepted (PROJ-13).
func tokenWarnings(project string, spec hub.ProjectSpec) (out []string) {
	for _, role := range spec.Roles {
		if len(role.JWTTokens) > 0 {
			out = append(out, fmt.Sprintf("the jwtTokens of role %s are stored, and never accepted: they were issued by Argo CD; make new ones with `capstan project role create-token %s %s`", role.Name, project, role.Name))
		}
	}
	return out
}
