package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// Settings of features that this release lacks are kept, and their writer is told
// that nothing uses them (decision 0088).
func TestSettingsOfUnservedFeatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	kept := func(t *testing.T, key, value, bad string) {
		t.Helper()
		const params = "argocd-cmd-params-cm"
		var out struct{ Results []struct{ Warnings []string } }
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + params + ", namespace: argocd}\ndata: {" + key + ": '" + value + "'}\n"
		w.call(admin, http.MethodPost, "/api/v1/apply", text).ok(200).into(&out)
		if got := strings.Join(out.Results[0].Warnings, "\n"); !strings.Contains(got, key+" of "+params+" is stored, but not used yet") {
			t.Errorf("the warnings are %q", got)
		}
		var all struct {
			Items []struct {
				Map, Key, Value string
				Used            bool
			}
		}
		w.call(admin, http.MethodGet, settingsPath, nil).ok(200).into(&all)
		found := false
		for _, s := range all.Items {
			found = found || s.Map == params && s.Key == key && s.Value == value && !s.Used
		}
		if !found {
			t.Errorf("%s is not kept: %+v", key, all.Items)
		}
		if bad != "" {
			w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{params: map[string]any{key: bad}}}).fails(400)
		}
	}
	t.Run("ANY-04(refused) namespaces of ApplicationSets are kept without effect, and an ApplicationSet is refused in any namespace", func(t *testing.T) {
		kept(t, "applicationsetcontroller.namespaces", "team-*", "")
		for _, namespace := range []string{"argocd", "team-a"} {
			var out struct {
				Failed  int
				Results []struct{ Error struct{ Message, Fix string } }
			}
			w.call(admin, http.MethodPost, "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: all, namespace: "+namespace+"}\n").ok(200).into(&out)
			if out.Failed != 1 || !strings.Contains(out.Results[0].Error.Message, "not served") {
				t.Errorf("%s: %+v", namespace, out)
			}
		}
	})
	t.Run("ANY-05(refused) limits of what generators may reach are kept without effect, and checked", func(t *testing.T) {
		kept(t, "applicationsetcontroller.allowed.scm.providers", "https://git.example.com", "")
		kept(t, "applicationsetcontroller.enable.scm.providers", "false", "perhaps")
		kept(t, "applicationsetcontroller.enable.tokenref.strict.mode", "true", "perhaps")
	})
	t.Run("ANY-06(refused) the switch of notifications of namespaces is kept without effect, and checked", func(t *testing.T) {
		kept(t, "notificationscontroller.selfservice.enabled", "true", "perhaps")
	})
}
