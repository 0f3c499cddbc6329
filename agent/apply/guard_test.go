package apply

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	config := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	home := manifest.Key{Kind: "ConfigMap", Namespace: "capstan-system", Name: "web"}
	role := manifest.Key{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "capstan-system:capstan-agent"}
	rbac := func(kind, namespace, name string) manifest.Key {
		return manifest.Key{Group: "rbac.authorization.k8s.io", Kind: kind, Namespace: namespace, Name: name}
	}
	homeItself := manifest.Key{Kind: "Namespace", Name: "capstan-system"}
	other := rbac("ClusterRole", "", "viewers")
	space := manifest.Key{Kind: "Namespace", Name: "shop"}
	rules := func(change func(*GuardRules)) Guard {
		r := &GuardRules{AllowDelete: true, AllowClusterScoped: true}
		change(r)
		return Guard{Home: "capstan-system", Rules: r}
	}
	type decision struct{ write, delete bool }
	for name, c := range map[string]struct {
		guard Guard
		key   manifest.Key
		want  decision
		says  string
	}{
		"None": {Guard{}, role, decision{true, true}, ""},
		// The agent's own identity is protected by the agent itself: with no guard
		// file as with one, by the names that its chart gives and by more that it
		// was told.
		"NoFileHome":            {Guard{Home: "capstan-system"}, home, decision{}, "agent's own namespace"},
		"NoFileHomeItself":      {Guard{Home: "capstan-system"}, homeItself, decision{}, "agent's own namespace"},
		"NoFileIdentity":        {Guard{Home: "capstan-system"}, manifest.Key{Kind: "Secret", Namespace: "capstan-system", Name: "capstan-agent-state"}, decision{}, "agent's own namespace"},
		"NoFileAccount":         {Guard{Home: "capstan-system"}, manifest.Key{Kind: "ServiceAccount", Namespace: "capstan-system", Name: "capstan-agent"}, decision{}, "agent's own namespace"},
		"NoFileDeployment":      {Guard{Home: "capstan-system"}, manifest.Key{Group: "apps", Kind: "Deployment", Namespace: "capstan-system", Name: "capstan-agent"}, decision{}, "agent's own namespace"},
		"NoFileOwnRole":         {Guard{Home: "capstan-system"}, rbac("Role", "capstan-system", "capstan-agent"), decision{}, "agent's own namespace"},
		"NoFileClusterRole":     {Guard{Home: "capstan-system"}, role, decision{}, "agent's own rights"},
		"NoFileClusterBinding":  {Guard{Home: "capstan-system"}, rbac("ClusterRoleBinding", "", "capstan-system:capstan-agent"), decision{}, "agent's own rights"},
		"NoFileReleaseOfItsOwn": {Guard{Home: "capstan-system"}, rbac("ClusterRoleBinding", "", "capstan-system:edge"), decision{}, "agent's own rights"},
		"NoFileBindingOfScope":  {Guard{Home: "capstan-system"}, rbac("RoleBinding", "shop", "capstan-system:capstan-agent"), decision{}, "agent's own rights"},
		"NoFileNamedGrant":      {Guard{Home: "capstan-system", Own: []string{"deployers"}}, rbac("ClusterRole", "", "deployers"), decision{}, "agent's own rights"},
		"NoFileOther":           {Guard{Home: "capstan-system"}, config, decision{true, true}, ""},
		"NoFileOtherRole":       {Guard{Home: "capstan-system"}, rbac("ClusterRole", "", "capstan-system-viewers"), decision{true, true}, ""},
		"NoFileOtherGroup":      {Guard{Home: "capstan-system"}, manifest.Key{Group: "example.org", Kind: "Thing", Name: "capstan-system:x"}, decision{true, true}, ""},
		"FileClusterRole":       {rules(func(*GuardRules) {}), role, decision{}, "agent's own rights"},
		"FileClusterBinding":    {rules(func(*GuardRules) {}), rbac("ClusterRoleBinding", "", "capstan-system:capstan-agent"), decision{}, "agent's own rights"},
		"FileAllowsRights":      {rules(func(r *GuardRules) { r.AllowOwnNamespace = true }), role, decision{true, true}, ""},
		"Observe":               {Guard{Observe: true}, config, decision{}, "only observes"},
		"InScope":               {Guard{Scope: []string{"shop"}}, config, decision{true, true}, ""},
		"OutOfScope":            {Guard{Scope: []string{"shop"}}, home, decision{}, "sees only the namespaces shop"},
		"ScopeIsNoGlob":         {Guard{Scope: []string{"*"}}, config, decision{}, "sees only"},
		"ClusterOutOfScope":     {Guard{Scope: []string{"shop"}}, role, decision{}, "nothing cluster-scoped"},
		"NoDelete":              {rules(func(r *GuardRules) { r.AllowDelete = false }), config, decision{true, false}, "permits no deletion"},
		"NoClusterScoped":       {rules(func(r *GuardRules) { r.AllowClusterScoped = false }), space, decision{}, "nothing cluster-scoped"},
		"Home":                  {rules(func(*GuardRules) {}), home, decision{}, "agent's own namespace"},
		"HomeItself":            {rules(func(*GuardRules) {}), manifest.Key{Kind: "Namespace", Name: "capstan-system"}, decision{}, "agent's own namespace"},
		"HomeAllowed":           {rules(func(r *GuardRules) { r.AllowOwnNamespace = true }), home, decision{true, true}, ""},
		"ForbiddenNamespace":    {rules(func(r *GuardRules) { r.Namespaces = []string{"*", "!sh*"} }), config, decision{}, "namespace shop"},
		"NamespaceItself":       {rules(func(r *GuardRules) { r.Namespaces = []string{"*", "!sh*"} }), space, decision{}, "namespace shop"},
		"OtherNamespace":        {rules(func(r *GuardRules) { r.Namespaces = []string{"!kube-*", "*"} }), config, decision{true, true}, ""},
		"NotListed":             {rules(func(r *GuardRules) { r.Namespaces = []string{"team-*"} }), config, decision{}, "namespace shop"},
		"ClusterAndSpaces":      {rules(func(r *GuardRules) { r.Namespaces = []string{"team-*"} }), other, decision{true, true}, ""},
		"DeniedByName":          {rules(func(r *GuardRules) { r.Deny = []GuardKind{{Kind: "ClusterRole", Name: "view*"}} }), other, decision{}, "does not permit"},
		"DeniedGroup":           {rules(func(r *GuardRules) { r.Deny = []GuardKind{{Group: "apps"}} }), config, decision{true, true}, ""},
		"DenyWins": {rules(func(r *GuardRules) {
			r.Allow, r.Deny = []GuardKind{{Kind: "*"}}, []GuardKind{{Namespace: "shop"}}
		}), config, decision{}, "does not permit"},
		"Allowed":    {rules(func(r *GuardRules) { r.Allow = []GuardKind{{Kind: "Config*"}} }), config, decision{true, true}, ""},
		"NotAllowed": {rules(func(r *GuardRules) { r.Allow = []GuardKind{{Kind: "Config*"}} }), other, decision{}, "does not permit"},
	} {
		t.Run("SEC-K9 "+name, func(t *testing.T) {
			t.Parallel()
			namespaced := c.key.Namespace != ""
			write, del := c.guard.writes(c.key, namespaced), c.guard.deletes(c.key, namespaced)
			if got := (decision{write == nil, del == nil}); got != c.want {
				t.Errorf("%+v, want %+v (%v, %v)", got, c.want, write, del)
			}
			if del != nil && (fault.KindOf(del) != fault.Denied || !strings.Contains(fault.Sentence(del), c.says)) {
				t.Errorf("it says %q", fault.Sentence(del))
			}
		})
	}
}

func TestGuardRulesAreRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]GuardRules{
		"a namespace with an invalid glob": {Namespaces: []string{"!["}},
		"a kind with an invalid glob":      {Deny: []GuardKind{{Kind: "[a"}}},
		"an empty entry":                   {Deny: []GuardKind{{}}},
	} {
		if err := r.Validate(); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
