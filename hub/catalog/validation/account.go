package validation

import (
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
