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
		if got := strings.Join(out.Results[0].Warnings, "\n"); !strings.Contains(got, key+" of "+params+" is stored without effect: ") {
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
	t.Run("ANY-06(refused) the switch of notifications of namespaces is kept without effect, and checked", func(t *testing.T) {
		kept(t, "notificationscontroller.selfservice.enabled", "true", "perhaps")
	})
}
