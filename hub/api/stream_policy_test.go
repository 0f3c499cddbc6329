package api_test

import (
	"net/http"
	"testing"
)

// Rights are asked again while a stream is open (SEC-D8).
func TestStreamFollowsThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for _, name := range []string{"one", "two"} {
		w.call(admin, "POST", "/api/v1/applications", application(name)).ok(201)
	}
	const all, one = "p, ann, *, get, *, allow\n", "p, ann, applications, get, default/one, allow\n"
	w.setPolicy(admin, map[string]any{"policy.csv": all}).ok(200)
	var list struct {
		Cursor string
		Items  []struct{ Metadata struct{ Name, UID string } }
	}
	w.call(ann, http.MethodGet, "/api/v1/applications", nil).ok(200).into(&list)
	ids := map[string]string{}
	for _, a := range list.Items {
		ids[a.Metadata.Name] = a.Metadata.UID
	}
	t.Run("RBAC-19 SEC-D8 SEC-F3 a right that is lost takes objects out of an open stream, and a new one brings them", func(t *testing.T) {
		events := w.listen(t, ann, "?cursor="+list.Cursor)
		until(t, events, "a sign of life", func(e event) bool { return e.Name == "alive" || e.Name == "application" })
		w.setPolicy(admin, map[string]any{"policy.csv": one}).ok(200)
		gone := map[string]bool{}
		until(t, events, "that application two and the cluster are gone", func(e event) bool {
			if e.Data.Gone {
				gone[e.Data.Kind] = true
				if e.Data.ID == ids["one"] {
					t.Error("an application that may still be seen is gone")
				}
				gone[e.Data.ID] = true
			}
			return gone[ids["two"]] && gone["cluster"] && gone["project"]
		})
		w.setPolicy(admin, map[string]any{"policy.org.csv": "p, *, applications, get, default/one, deny\n"}).status4(200)
		until(t, events, "that application one is gone", func(e event) bool { return e.Data.Gone && e.Data.ID == ids["one"] })
		w.setPolicy(admin, map[string]any{"policy.org.csv": nil}).ok(200)
		e := until(t, events, "application one again", func(e event) bool { return e.Name == "application" && !e.Data.Gone })
		if e.Data.Name != "one" {
			t.Errorf("the event is %+v", e)
		}
	})
	t.Run("SEC-D8 a stream that goes on after rights were lost makes its client list again", func(t *testing.T) {
		events := w.listen(t, ann, "?cursor="+list.Cursor)
		if e, ok := <-events; !ok || e.Name != "reset" {
			t.Errorf("the first event is %+v", e)
		}
	})
	t.Run("SEC-D8 a stream of one application says that it is gone", func(t *testing.T) {
		events := w.listen(t, ann, "?application=argocd/one")
		until(t, events, "a sign of life", func(e event) bool { return e.Name == "alive" })
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, get, default/two, allow\n"}).ok(200)
		e := until(t, events, "the end of the visibility", func(e event) bool { return e.Name != "alive" })
		if !e.Data.Gone || e.Data.ID != ids["one"] {
			t.Errorf("the event is %+v", e)
		}
	})
	t.Run("SEC-D8 a deleted account ends its streams", func(t *testing.T) {
		events := w.listen(t, ann, "")
		until(t, events, "a sign of life", func(e event) bool { return e.Name == "alive" })
		w.call(admin, http.MethodDelete, "/api/v1/users/ann", nil).ok(204)
		for e := range events { // ends only because the stream does
			if e.Data.Name != "" {
				t.Errorf("the stream shows %+v", e)
			}
		}
	})
}
