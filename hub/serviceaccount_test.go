package hub_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

// An application acts as a service account or as the agent, whatever a project
// writes: never as a group, a user or another name that a header could carry.
func TestNamesOfServiceAccounts(t *testing.T) {
	t.Parallel()
	t.Run("SEC-D13 a name that would be more than one account is refused", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{
			"", " ", "a b", "a\tb", "a\nb", "a\r\nImpersonate-Group: system:masters", "a\x00b", "a\x7fb", "é", "system:serviceaccount:kube-system:deployer", ":a", "a:", "a:b:c", "*", "!a", "a/b", `a\b`,
		} {
			if err := (hub.DestinationServiceAccount{Server: "*", Namespace: "*", DefaultServiceAccount: name}).Check(); err == nil {
				t.Errorf("%q is accepted", name)
			}
		}
	})
	t.Run("SEC-D13 what is accepted is always a service account", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"deployer", "ops:deployer", "system:masters", "kube-system:admin"} {
			d := hub.DestinationServiceAccount{Server: "*", Namespace: "*", DefaultServiceAccount: name}
			if err := d.Check(); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			spec := hub.ProjectSpec{DestinationServiceAccounts: []hub.DestinationServiceAccount{d}}
			got := spec.ServiceAccount(hub.Application{}, hub.Destination{Server: "https://prod.example.com", Namespace: "shop"})
			if !strings.HasPrefix(got, "system:serviceaccount:") || strings.Count(got, ":") != 3 {
				t.Errorf("%q acts as %q", name, got)
			}
		}
	})
}
