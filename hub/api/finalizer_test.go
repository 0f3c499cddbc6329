package api_test

import (
	"slices"
	"strings"
	"testing"
)

func TestCascadeFinalizers(t *testing.T) {
	t.Parallel()
	const finalizer = "resources-finalizer.argocd.argoproj.io"
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for name, c := range map[string]struct {
		why        string
		finalizers []any
		query      string
		options    []any
		want       []string // sync options of the deletion; nil: there is none
	}{
		"plain":      {"the objects go, and what they own before them", []any{finalizer}, "", nil, []string{}},
		"foreground": {"as the plain one", []any{finalizer + "/foreground"}, "", nil, []string{"PrunePropagationPolicy=foreground"}},
		"background": {"the objects go first", []any{finalizer + "/background"}, "", nil, []string{"PrunePropagationPolicy=background"}},
		"over-options": {
			"the finalizer is about this deletion, the option about each prune", []any{finalizer + "/foreground"}, "",
			[]any{"PrunePropagationPolicy=orphan"}, []string{"PrunePropagationPolicy=orphan", "PrunePropagationPolicy=foreground"},
		},
		"request":    {"the request is about this deletion, too", []any{finalizer + "/background"}, "?propagation=foreground", nil, []string{"PrunePropagationPolicy=foreground"}},
		"none":       {"nothing asks for a cascade", nil, "", nil, nil},
		"no-cascade": {"the request says so", []any{finalizer + "/background"}, "?cascade=false", nil, nil},
	} {
		t.Run("APP-29 finalizer "+name, func(t *testing.T) {
			body := application(name, func(spec map[string]any) {
				spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
				if c.options != nil {
					spec["syncPolicy"] = map[string]any{"syncOptions": c.options}
				}
			})
			if c.finalizers != nil {
				body["metadata"].(map[string]any)["finalizers"] = c.finalizers
			}
			w.call(admin, "POST", "/api/v1/applications", body).ok(201)
			went(t, w, name, nil, []string{"c0ffee"})
			w.call(admin, "POST", "/api/v1/applications/argocd/"+name+"/sync", map[string]any{}).ok(202)
			a := w.call(admin, "DELETE", "/api/v1/applications/argocd/"+name+c.query, nil)
			if c.want == nil {
				a.ok(204)
				w.call(admin, "GET", "/api/v1/applications/argocd/"+name, nil).fails(404)
				return
			}
			var x struct {
				Status struct {
					OperationState struct {
						Kind      string
						Operation struct {
							Sync struct{ SyncOptions []string }
						}
					}
				}
			}
			a.ok(202).into(&x)
			if op := x.Status.OperationState; op.Kind != "delete" || !slices.Equal(op.Operation.Sync.SyncOptions, c.want) {
				t.Errorf("%+v, want %v: %s", op, c.want, c.why)
			}
		})
	}
}

func TestPropagationOfDeletions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	begun := func(t *testing.T, name string) string {
		t.Helper()
		w.call(admin, "POST", "/api/v1/applications", application(name, func(spec map[string]any) {
			spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
		})).ok(201)
		went(t, w, name, nil, []string{"c0ffee"})
		w.call(admin, "POST", "/api/v1/applications/argocd/"+name+"/sync", map[string]any{}).ok(202)
		return "/api/v1/applications/argocd/" + name
	}
	for _, policy := range []string{"foreground", "background", "orphan"} {
		for _, parameter := range []string{"propagationPolicy", "propagation"} {
			t.Run("API-06 deletion with "+parameter+" "+policy, func(t *testing.T) {
				at := begun(t, strings.ToLower(parameter)+"-"+policy)
				var x struct {
					Status struct {
						OperationState struct {
							Kind      string
							Operation struct {
								Sync struct{ SyncOptions []string }
							}
						}
					}
				}
				w.call(admin, "DELETE", at+"?cascade=true&"+parameter+"="+policy, nil).ok(202).into(&x)
				op := x.Status.OperationState
				if got := op.Operation.Sync.SyncOptions; op.Kind != "delete" || len(got) == 0 || got[len(got)-1] != "PrunePropagationPolicy="+policy {
					t.Errorf("the deletion is %+v", op)
				}
			})
		}
	}
	t.Run("API-06 policies that there are not, or that differ, delete nothing", func(t *testing.T) {
		at := begun(t, "stays")
		w.call(admin, "DELETE", at+"?propagationPolicy=sideways", nil).fails(400)
		w.call(admin, "DELETE", at+"?propagationPolicy=orphan&propagation=foreground", nil).fails(400)
		w.call(admin, "GET", at, nil).ok(200)
	})
	t.Run("API-06 without cascade a policy is about nothing", func(t *testing.T) {
		at := begun(t, "left")
		w.call(admin, "DELETE", at+"?cascade=false&propagationPolicy=orphan", nil).ok(204)
	})
}
