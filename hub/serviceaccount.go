package hub

import (
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// A DestinationServiceAccount names the account as which the applications of a
// project act at a destination (PROJ-05).
type DestinationServiceAccount struct {
	Server    string `json:"server"`              // glob over the cluster's server
	Namespace string `json:"namespace,omitempty"` // glob over the destination's namespace
	// DefaultServiceAccount is a name, or namespace:name.
	DefaultServiceAccount string `json:"defaultServiceAccount"`
}

// accountRefused are characters that no name of an account may have, as in
// Argo CD.
const accountRefused = "!*[]{}\\/"

// notPrintable reports whether a character is a blank, a control or beyond ASCII.
// Names of service accounts have none.
func notPrintable(c rune) bool { return c <= ' ' || c > '~' }

// Check validates globs and the account's name.
func (d DestinationServiceAccount) Check() error {
	for _, f := range []struct{ name, value string }{{"server", d.Server}, {"namespace", d.Namespace}} {
		if strings.Contains(f.value, "!") {
			return fault.With(fault.New(fault.Invalid, "%s %q has a !, which denies nothing here", f.name, f.value), "", "write a glob without !; the first entry that matches counts")
		}
		if err := glob.Check(f.value); err != nil {
			return err
		}
	}
	if d.Server == "" {
		return fault.With(fault.New(fault.Invalid, "it has no server"), "", "set server; * stands for any")
	}
	name := d.DefaultServiceAccount
	namespace, rest, both := strings.Cut(name, ":")
	if strings.TrimSpace(name) == "" || strings.ContainsAny(name, accountRefused) || strings.ContainsFunc(name, notPrintable) || both && (namespace == "" || rest == "" || strings.Contains(rest, ":")) {
		return fault.With(fault.New(fault.Invalid, "defaultServiceAccount %q is no account", name), "", "write it like deployer, or namespace:deployer")
	}
	return nil
}

// ServiceAccount is the user as which an application acts at its destination:
// that of the first entry that matches server and namespace (IMP-02). It is
// empty if no entry matches. A name without namespace is in the destination's
// namespace, or in the application's where the destination has none.
func (s ProjectSpec) ServiceAccount(a Application, destination Destination) string {
	for _, d := range s.DestinationServiceAccounts {
		if !glob.Match(strings.TrimRight(d.Server, "/"), strings.TrimRight(destination.Server, "/")) || !glob.Match(d.Namespace, destination.Namespace) {
			continue
		}
		if strings.Contains(d.DefaultServiceAccount, ":") {
			return "system:serviceaccount:" + d.DefaultServiceAccount
		}
		namespace := destination.Namespace
		if namespace == "" {
			namespace = a.Namespace
		}
		return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, d.DefaultServiceAccount)
	}
	return ""
}

// An AccessReport is what the service account of an application lacks for the
// application's objects (IMP-04).
type AccessReport struct {
	ServiceAccount    string // user name; empty: the project names none
	Enabled, Enforced bool   // impersonation, by the settings that the agent has
	Objects           int    // that were checked
	Missing           []MissingRight
	Incomplete        bool // there were too many rights to check
}

// A MissingRight is a right that an account lacks. An empty name is any.
type MissingRight struct {
	Verb, Group, Resource, Namespace, Name, Fix string
}
