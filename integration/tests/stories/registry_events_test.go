package stories_test

import (
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
)

// TestRegistryNotifies pushes to the registry of the Distribution project, which
// notifies the hub. The hub itself looks at repositories less often than a step
// of a story may take.
func TestRegistryNotifies(t *testing.T) {
	const name = "notified"
	secret, password := rand.Text(), rand.Text()
	settings := map[string]any{"argocd-secret": map[string]any{"webhook.registry.secret": secret}}
	if err := s.API.Do(within(t, waitLimit), http.MethodPatch, "/api/v1/settings", map[string]any{"values": settings}, nil); err != nil {
		t.Fatal(err)
	}
	reporting := registry.New(t, registry.Options{User: "bot", Password: password, Notify: s.API.URL + "/api/webhook", NotifyKey: "Bearer " + secret})
	push := func(t *testing.T, version string) {
		t.Helper()
		files := chartstest.Files(map[string]string{"app/a.yaml": configMap("a", version)})
		if _, err := reporting.Push(within(t, waitLimit), "team/plain", version, files); err != nil {
			t.Fatal(err)
		}
	}
	push(t, "1.0.0")
	if out, err := s.API.CLI(within(t, waitLimit), password, "repo", "add", reporting.URL("team/plain"), "--type", "oci", "--username", "bot", "--password-stdin", "--insecure"); err != nil {
		t.Fatal(err, out)
	}
	cli(t, "app", "create", name, "--repo", reporting.URL("team/plain"), "--path", "app", "--revision", "1.x", "--dest-name", "in-cluster", "--dest-namespace", name,
		"--sync-policy", "automated", "--sync-option", "CreateNamespace=true")
	settled(t, name)
	live(t, name, "a", value("1.0.0"))
	t.Run("HOOKW-08 an artifact that is pushed to a registry is deployed because the registry notifies the hub", func(t *testing.T) {
		push(t, "1.1.0")
		live(t, name, "a", value("1.1.0"))
		settled(t, name)
	})
	cli(t, "app", "delete", name, "--yes")
	absent(t, name)
}
