package apply

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Guard is what the cluster's owner permits an agent to do. It is part of the
// agent's installation, so the hub can neither change nor bypass it. The
// agent's own namespace and rights are protected with and without a guard file,
// unless the file permits changes. The zero value, which has no Home, permits
// everything.
type Guard struct {
	// Observe refuses every write.
	Observe bool
	// Scope lists the only namespaces that the agent has rights in. Nothing
	// cluster-scoped is seen or written then. Empty: the whole cluster.
	Scope []string
	// Home is the agent's own namespace. Everything in it is the agent's own,
	// and so are, wherever they are, roles and bindings whose name begins with
	// "Home:": the agent's chart names them Home:release.
	Home string
	// Own are further names of roles and bindings that grant the agent its
	// rights.
	Own []string
	// Rules are those of the guard file; nil: none.
	Rules *GuardRules
	// Current returns the rules as the file has them now, and replaces Rules; nil:
	// the file is not read again.
	Current func() *GuardRules
}

// GuardRules are the contents of a guard file.
type GuardRules struct {
	AllowDelete        bool        `json:"allowDelete"`
	AllowClusterScoped bool        `json:"allowClusterScoped"`
	AllowOwnNamespace  bool        `json:"allowOwnNamespace"`
	AllowPrune         bool        `json:"allowPrune"`
	AllowLiveEdit      bool        `json:"allowLiveEdit"` // patches, deletions and actions of people
	Namespaces         []string    `json:"namespaces"`    // globs; a leading "!" denies; empty: all
	Allow              []GuardKind `json:"allow"`         // empty: all
	Deny               []GuardKind `json:"deny"`          // takes precedence
	Logs               GuardAccess `json:"logs"`          // and events
	Exec               GuardAccess `json:"exec"`
	PortForward        GuardAccess `json:"portForward"`

	// Broken says why the file cannot be read; then nothing is permitted.
	Broken string `json:"-"`
}

// DefaultRules are what a guard file says that is empty, and what holds without
// one: commands in containers and forwarded ports are disabled.
func DefaultRules() GuardRules {
	return GuardRules{
		AllowDelete: true, AllowClusterScoped: true, AllowPrune: true, AllowLiveEdit: true, Logs: GuardAccess{Enabled: true},
	}
}

// A GuardKind matches objects by globs; an empty one matches all.
type GuardKind struct {
	Group     string   `json:"group"`
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Verbs     []string `json:"verbs,omitempty"` // apply, delete and edit; empty: all
}

// Verbs of the entries of a guard file.
const (
	verbApply  = "apply"  // what applications declare
	verbDelete = "delete" // prune, recreate, delete with the application
	verbEdit   = "edit"   // patches, deletions and actions of people
)

// Validate reports globs that cannot be read, which would match nothing.
func (r GuardRules) Validate() error {
	globs := slices.Clone(r.Namespaces)
	for _, k := range slices.Concat(r.Allow, r.Deny) {
		if k.Group+k.Kind+k.Namespace+k.Name == "" && len(k.Verbs) == 0 {
			return fault.New(fault.Invalid, "an entry of allow or deny names nothing; write kind: \"*\" to mean everything")
		}
		globs = append(globs, k.Group, k.Kind, k.Namespace, k.Name)
		for _, v := range k.Verbs {
			if v != verbApply && v != verbDelete && v != verbEdit {
				return fault.New(fault.Invalid, "an entry of allow or deny has the verb %q; the verbs are apply, delete and edit", v)
			}
		}
	}
	for _, access := range [...]GuardAccess{r.Logs, r.Exec, r.PortForward} {
		if access.MaxDuration < 0 || access.IdleTimeout < 0 {
			return fault.New(fault.Invalid, "a duration is negative")
		}
		globs = append(globs, access.Namespaces...)
		globs = append(globs, access.Containers...)
	}
	for _, g := range globs {
		if err := glob.Check(strings.TrimPrefix(g, "!")); err != nil {
			return err
		}
	}
	return nil
}

func (k GuardKind) matches(key manifest.Key, verb string) bool {
	if len(k.Verbs) > 0 && !slices.Contains(k.Verbs, verb) {
		return false
	}
	for _, p := range [...]struct{ pattern, value string }{
		{k.Group, key.Group}, {k.Kind, key.Kind}, {k.Namespace, key.Namespace}, {k.Name, key.Name},
	} {
		if p.pattern != "" && !glob.Match(p.pattern, p.value) {
			return false
		}
	}
	return true
}

// Changing the rules is up to people who can change the agent's installation.
const guardFix = "the cluster's owner can change it in the values of the agent's chart"

func (g Guard) refuse(key manifest.Key, format string, args ...any) error {
	return fault.With(fault.New(fault.Denied, format, args...), key.Describe(), guardFix)
}

// mayRead reports whether the agent may read an object at all.
func (g Guard) mayRead(key manifest.Key, namespaced bool) error {
	switch {
	case inHub(key): // it is not an object of the cluster
		return nil
	case len(g.Scope) == 0, namespaced && slices.Contains(g.Scope, key.Namespace):
		return nil
	case !namespaced:
		return g.refuse(key, "this agent sees only objects of the namespaces %s, and nothing cluster-scoped", strings.Join(g.Scope, ", "))
	}
	return g.refuse(key, "this agent sees only the namespaces %s", strings.Join(g.Scope, ", "))
}

// rules are those that hold now; nil: none.
func (g Guard) rules() *GuardRules {
	if g.Current != nil {
		return g.Current()
	}
	return g.Rules
}

// writes reports whether an object may be written.
func (g Guard) writes(key manifest.Key, namespaced bool) error {
	return g.permits(key, namespaced, verbApply)
}

// permits reports whether an object may be changed by a verb.
func (g Guard) permits(key manifest.Key, namespaced bool, verb string) error {
	if inHub(key) {
		return nil // the hub itself decides whether it may be written
	}
	if g.Observe {
		return g.refuse(key, "this agent only observes; it changes nothing")
	}
	if err := g.mayRead(key, namespaced); err != nil {
		return err
	}
	r := g.rules()
	home := namespaceOf(key)
	switch protected := r == nil || !r.AllowOwnNamespace; {
	case r != nil && r.Broken != "":
		return g.refuse(key, "the policy of the cluster's owner cannot be read, so nothing is permitted: %s", r.Broken)
	case protected && home != "" && home == g.Home:
		return g.refuseOwn(key, "the agent's own namespace")
	case protected && g.grants(key):
		return g.refuseOwn(key, "the agent's own rights")
	case r == nil:
		return nil
	case !namespaced && !r.AllowClusterScoped:
		return g.refuse(key, "the local guard of the cluster permits nothing cluster-scoped")
	case home != "" && !matchesNamespace(r.Namespaces, home):
		return g.refuse(key, "the local guard of the cluster does not permit changes in namespace %s", home)
	case slices.ContainsFunc(r.Deny, func(k GuardKind) bool { return k.matches(key, verb) }),
		len(r.Allow) > 0 && !slices.ContainsFunc(r.Allow, func(k GuardKind) bool { return k.matches(key, verb) }):
		return g.refuse(key, "the local guard of the cluster does not permit changes of it")
	}
	return nil
}

// namespaceOf is the namespace that a key is in or names.
func namespaceOf(key manifest.Key) string {
	if key.Group == "" && key.Kind == "Namespace" {
		return key.Name
	}
	return key.Namespace
}

// grants reports whether an object outside of the agent's namespace is one of
// those that give the agent its rights.
func (g Guard) grants(key manifest.Key) bool {
	if g.Home == "" || key.Group != "rbac.authorization.k8s.io" {
		return false
	}
	return strings.HasPrefix(key.Name, g.Home+":") || slices.Contains(g.Own, key.Name)
}

func (g Guard) refuseOwn(key manifest.Key, what string) error {
	return fault.With(fault.New(fault.Denied, "the local guard of the cluster protects %s", what), key.Describe(),
		"the cluster's owner can allow it with allowOwnNamespace: true in the agent's guard file (guard.allowOwnNamespace of its chart)")
}

// deletes reports whether an object may be deleted.
func (g Guard) deletes(key manifest.Key, namespaced bool) error {
	if err := g.permits(key, namespaced, verbDelete); err != nil {
		return err
	}
	if r := g.rules(); r != nil && !r.AllowDelete && !inHub(key) {
		return g.refuse(key, "the local guard of the cluster permits no deletion")
	}
	return nil
}

// prunes reports whether an object may be deleted that its application no longer
// has.
func (g Guard) prunes(key manifest.Key, namespaced bool) error {
	if err := g.deletes(key, namespaced); err != nil {
		return err
	}
	if r := g.rules(); r != nil && !r.AllowPrune && !inHub(key) {
		return g.refuse(key, "the local guard of the cluster permits no prune")
	}
	return nil
}

// edits reports whether people may change an object beside its application.
func (g Guard) edits(key manifest.Key, namespaced bool) error {
	if err := g.permits(key, namespaced, verbEdit); err != nil {
		return err
	}
	if r := g.rules(); r != nil && !r.AllowLiveEdit && !inHub(key) {
		return g.refuse(key, "the local guard of the cluster permits no changes of live objects")
	}
	return nil
}

// enters reports whether the agent may ensure a namespace. A namespace of its
// scope exists already, and may be read.
func (g Guard) enters(key manifest.Key, name string) error {
	if slices.Contains(g.Scope, name) && !g.Observe {
		return nil
	}
	return g.writes(key, false)
}

// permits reports whether the cluster's owner and the project permit writing an
// object of the application. A project that is restricted while an operation
// runs counts at once, though the operation ends before the new state is
// processed. The caller holds mu.
func (a *app) permits(key manifest.Key, namespaced bool) error {
	if err := a.e.Guard.writes(key, namespaced); err != nil || inHub(key) {
		return err
	}
	state := a.state
	if a.newState || a.taking {
		if row, ok := a.e.Inventory.App(a.id); ok {
			state = row.State
		}
	}
	return permit(state.GetPolicy().GetLimits(), state.GetProject(), key, namespaced)
}
