package rbac_test

import (
	"testing"

	"github.com/capstan-cd/capstan/shared/rbac"
)

// FuzzPolicy shows that no text of a policy makes reading or checking panic, and
// that rules that allow are no more than what was read.
func FuzzPolicy(f *testing.F) {
	f.Add("p, role:a, applications, get, */*, allow\ng, ada, role:a", "applications", "get", "shop/web", false)
	f.Add("p, role:a, applications, update/*/*, shop/[ab]*, deny", "applications", "update/apps/Deployment/x/y", "shop/a", false)
	f.Add("p, ada, applications, .*, ^(a+)+$, allow", "applications", "sync", "aaaaaaaaaaaaaaaaaaaaaaaa!", true)
	f.Add("g, ada, role:a\ng, role:a, role:a\np,,,,,", "", "", "", false)
	f.Add("\"p\", \"role:\"\"a\", x", "*", "*", "*", true)
	f.Fuzz(func(t *testing.T, text, resource, action, object string, regex bool) {
		rules, bindings, _ := rbac.Parse("policy.csv", text, regex)
		index := rbac.Compile(rbac.Policy{Rules: rules, Bindings: bindings, Regex: regex}, rbac.Options{}).For([]string{"ada"})
		if index.Check(resource, action, object) && len(rules) == 0 {
			t.Errorf("no rule allows %s %s on %q", action, resource, object)
		}
	})
}
