package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestFieldsOfLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, name := range []string{"alpha", "beta"} {
		w.call(admin, "POST", "/api/v1/applications", application(name)).ok(201)
	}
	list := func(fields string) string { return "/api/v1/applications?fields=" + url.QueryEscape(fields) }
	for name, c := range map[string]struct{ fields, want string }{
		"API-03 fields answers with those fields alone": {"items.metadata.name,items.spec.source.path", `{"items":[{"metadata":{"name":"alpha"},"spec":{"source":{"path":"apps/alpha"}}},{"metadata":{"name":"beta"},"spec":{"source":{"path":"apps/beta"}}}]}`},
		"API-03 fields: a path covers longer ones":      {"items.metadata.name.first,kind,items.metadata.name", `{"items":[{"metadata":{"name":"alpha"}},{"metadata":{"name":"beta"}}],"kind":"ApplicationList"}`},
		"API-03 fields: - leaves fields out":            {"-items,metadata,cursor", `{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationList","total":2}`},
		"API-03 fields: what nothing has is not there":  {"items.spec.nothing", `{"items":[{"spec":{}},{"spec":{}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.call(admin, "GET", list(c.fields), nil).ok(200); strings.TrimSpace(string(a.body)) != c.want {
				t.Errorf("%s gives %s", c.fields, a.body)
			}
		})
	}
	t.Run("API-03 fields: - leaves parts of items out", func(t *testing.T) {
		a := w.call(admin, "GET", list("-items.spec.source,items.status"), nil).ok(200)
		if s := string(a.body); strings.Contains(s, `"source"`) || strings.Contains(s, `"status"`) || !strings.Contains(s, `"destination"`) {
			t.Errorf("it is %s", s)
		}
	})
	t.Run("API-03 fields that lists do not have are refused", func(t *testing.T) {
		for _, bad := range []string{"itmes", "items.metdata.name", "items..name", ",", "-", "items.metadata,"} {
			if p := w.call(admin, "GET", list(bad), nil).fails(400); !strings.Contains(p.Message+p.Cause, "fields") {
				t.Errorf("%q: %+v", bad, p)
			}
		}
	})
	t.Run("API-03 a sparse page has an ETag of its own", func(t *testing.T) {
		tag := w.call(admin, "GET", list("items.metadata.name,cursor"), nil).ok(200).header.Get("ETag")
		if whole := w.call(admin, "GET", "/api/v1/applications", nil).ok(200).header.Get("ETag"); whole == tag {
			t.Error("it is that of the whole page")
		}
		changed := application("beta", func(s map[string]any) { s["revisionHistoryLimit"] = 3 })
		w.call(admin, "PUT", "/api/v1/applications/argocd/beta", changed).ok(200)
		w.call(admin, "GET", list("items.metadata.name,cursor"), nil, header("If-None-Match", tag)).ok(http.StatusNotModified)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/beta", nil).ok(204)
		w.call(admin, "GET", list("items.metadata.name,cursor"), nil, header("If-None-Match", tag)).ok(200)
	})
}
