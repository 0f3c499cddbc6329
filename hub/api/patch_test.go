package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestChangesOfParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	reader := w.User("acme", "reader", hub.RoleReadOnly)
	const at = "/api/v1/applications/argocd/web"
	body := application("web")
	body["metadata"].(map[string]any)["labels"] = map[string]any{"team": "a"}
	first := w.call(admin, "POST", "/api/v1/applications", body).ok(201).header.Get("ETag")
	type shown struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			Project  string
			Revision int `json:"revisionHistoryLimit"`
			Source   struct{ Path, TargetRevision, RepoURL string }
			Info     []struct{ Name, Value string }
		}
	}
	now := func() (a shown) {
		t.Helper()
		w.call(admin, "GET", at, nil).ok(200).into(&a)
		return a
	}
	patch := func(kind string, what any) map[string]any {
		t.Helper()
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]any{"patch": string(text)}
		if kind != "" {
			out["patchType"] = kind
		}
		return out
	}
	t.Run("API-02 PUT of the spec does not change labels", func(t *testing.T) {
		spec := application("web", func(s map[string]any) { s["revisionHistoryLimit"] = 3 })["spec"]
		w.call(admin, "PUT", at+"/spec", spec).ok(200)
		if a := now(); a.Spec.Revision != 3 || a.Metadata.Labels["team"] != "a" {
			t.Errorf("it is %+v", a)
		}
	})
	t.Run("API-02 a merge patch changes what it names", func(t *testing.T) {
		w.call(admin, "PATCH", at, patch("merge", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "v2"}, "revisionHistoryLimit": nil}})).ok(200)
		if a := now(); a.Spec.Source.TargetRevision != "v2" || a.Spec.Source.Path != "apps/web" || a.Spec.Revision != 0 {
			t.Errorf("it is %+v", a)
		}
	})
	t.Run("API-02 a patch is a JSON patch unless its content type differs", func(t *testing.T) {
		w.call(admin, "PATCH", at, patch("", []any{
			map[string]any{"op": "test", "path": "/spec/source/targetRevision", "value": "v2"},
			map[string]any{"op": "replace", "path": "/spec/source/targetRevision", "value": "v3"},
			map[string]any{"op": "add", "path": "/metadata/labels/tier", "value": "front"},
		})).ok(200)
		if a := now(); a.Spec.Source.TargetRevision != "v3" || a.Metadata.Labels["tier"] != "front" || a.Metadata.Labels["team"] != "a" {
			t.Errorf("it is %+v", a)
		}
	})
	t.Run("API-02 a patch that cannot be applied changes nothing", func(t *testing.T) {
		before := now()
		replace := func(path string, value any) map[string]any {
			return map[string]any{"op": "replace", "path": path, "value": value}
		}
		for name, c := range map[string]struct {
			body any
			says string
		}{
			"no JSON":           {map[string]any{"patch": "{{"}, "no array"},
			"an object":         {patch("", map[string]any{}), "no array"},
			"an array to merge": {patch("merge", []any{}), "no JSON object"},
			"an unknown kind":   {patch("strategic", map[string]any{}), "patchType"},
			"an unknown step":   {patch("", []any{map[string]any{"op": "swap", "path": "/spec"}}), "swap"},
			"a missing path":    {patch("", []any{replace("/spec/source/path", "x"), replace("/spec/none/at/all", 1)}), "operation 2"},
			"a failed test":     {patch("", []any{map[string]any{"op": "test", "path": "/spec/project", "value": "other"}}), "operation 1"},
			"another name":      {patch("", []any{replace("/metadata/name", "other")}), "name"},
			"another namespace": {patch("merge", map[string]any{"metadata": map[string]any{"namespace": "other"}}), "namespace"},
			"a bad spec":        {patch("merge", map[string]any{"spec": map[string]any{"source": nil}}), "source"},
			"a text for a map":  {patch("merge", map[string]any{"metadata": map[string]any{"labels": "x"}}), "no application"},
		} {
			if p := w.call(admin, "PATCH", at, c.body).fails(400); !strings.Contains(p.Message+p.Cause+p.Fix, c.says) {
				t.Errorf("%s: %+v does not say %q", name, p, c.says)
			}
		}
		double := []any{map[string]any{"op": "add", "path": "/spec/info", "value": []any{map[string]any{"name": "a", "value": strings.Repeat("x", 100_000)}}}}
		for range 20 {
			double = append(double, map[string]any{"op": "copy", "from": "/spec", "path": "/spec/twice"})
		}
		w.call(admin, "PATCH", at, patch("", double)).fails(413)
		w.call(admin, "PATCH", at, patch("", slices.Repeat([]any{replace("/spec/project", "default")}, 101))).fails(400)
		if a := now(); a.Spec.Source != before.Spec.Source || len(a.Spec.Info) != 0 {
			t.Errorf("it is %+v", a)
		}
	})
	t.Run("API-02 UX-API-2 a change of an outdated version is refused", func(t *testing.T) {
		w.call(admin, "PATCH", at, patch("merge", map[string]any{"spec": map[string]any{"revisionHistoryLimit": 7}}), header("If-Match", first)).fails(412)
		w.call(admin, "PUT", at+"/spec", application("web")["spec"], header("If-Match", first)).fails(412)
		tag := w.call(admin, "GET", at, nil).ok(200).header.Get("ETag")
		w.call(admin, "PATCH", at, patch("merge", map[string]any{"spec": map[string]any{"revisionHistoryLimit": 7}}), header("If-Match", tag)).ok(200)
		if a := now(); a.Spec.Revision != 7 {
			t.Errorf("it is %+v", a)
		}
	})
	t.Run("API-02 fields that replies omit are neither copied nor guessed", func(t *testing.T) {
		secret := "https://bot:hunter2hunter2@files.example.com/x"
		w.call(admin, "PATCH", at, patch("merge", map[string]any{"spec": map[string]any{"info": []any{map[string]any{"name": "a", "value": secret}}}})).ok(200)
		for _, step := range []map[string]any{
			{"op": "copy", "from": "/spec/info/0/value", "path": "/metadata/labels/x"},
			{"op": "move", "from": "/spec/info/0/value", "path": "/metadata/labels/x"},
			{"op": "test", "path": "/spec/info/0/value", "value": secret},
		} {
			if p := w.call(admin, "PATCH", at, patch("", []any{step})).fails(400); strings.Contains(p.Message+p.Cause, "hunter2") {
				t.Errorf("the refusal repeats it: %+v", p)
			}
		}
		a := w.call(admin, "PATCH", at, patch("merge", map[string]any{"spec": map[string]any{"revisionHistoryLimit": 8}})).ok(200)
		if strings.Contains(string(a.body), "hunter2") {
			t.Errorf("the answer shows it: %s", a.body)
		}
	})
	t.Run("API-02 a change of a part needs the right to update, and a refusal is recorded", func(t *testing.T) {
		w.call(reader, "PATCH", at, patch("merge", map[string]any{})).fails(403)
		w.call(reader, "PUT", at+"/spec", application("web")["spec"]).fails(403)
		w.call(admin, "PATCH", "/api/v1/applications/argocd/none", patch("merge", map[string]any{})).fails(404)
		var log struct {
			Items []struct{ Actor, Action, Object, Result string }
		}
		w.call(admin, "GET", "/api/v1/audit", nil).ok(200).into(&log)
		refused := 0
		for _, r := range log.Items {
			if r.Action == "update" && r.Object == "default/web" && r.Result == "denied" {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d refusals of update are recorded: %+v", refused, log.Items)
		}
	})
}
