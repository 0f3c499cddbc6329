package changes_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/changes"
)

var (
	mine   = &hub.ApplicationKey{Namespace: "argocd", Name: "set"}
	theirs = &hub.ApplicationKey{Namespace: "argocd", Name: "other"}
)

func want(name string, spec string) changes.Application {
	return changes.Application{Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "shop", Spec: json.RawMessage(spec)}
}

func there(name, spec string, owner *hub.ApplicationKey) hub.Application {
	return hub.Application{Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "shop", Spec: json.RawMessage(spec), Set: owner}
}

// several are applications of the set, app-0 and so on.
func several(n int) (out []hub.Application) {
	for i := range n {
		out = append(out, there(fmt.Sprintf("app-%d", i), `{}`, mine))
	}
	return out
}

func generated(n int) (out []changes.Application) {
	for i := range n {
		out = append(out, want(fmt.Sprintf("app-%d", i), `{}`))
	}
	return out
}

func request() changes.Request {
	return changes.Request{
		Set:    hub.ApplicationSet{Meta: hub.Meta{Namespace: "argocd", Name: "set"}, Project: "shop"},
		Policy: changes.Policy{Update: true, Delete: true}, Limit: changes.DefaultLimit(), Now: time.Unix(1000, 0),
	}
}

// summary is a decision as text.
func summary(d changes.Decision) (out []string) {
	for _, a := range d.Create {
		out = append(out, "create "+a.Name)
	}
	for _, u := range d.Update {
		out = append(out, "update "+u.Want.Name)
	}
	for _, a := range d.Delete {
		out = append(out, "delete "+a.Name)
	}
	for _, p := range d.Problems {
		out = append(out, p.Application+": "+p.Message)
	}
	if d.Held != nil {
		out = append(out, fmt.Sprintf("held %d of %d", len(d.Held.Applications), d.Held.Of))
	}
	if d.Truncated > 0 {
		out = append(out, fmt.Sprintf("left out %d", d.Truncated))
	}
	slices.Sort(out)
	return out
}

func TestDecide(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why    string
		change func(r *changes.Request)
		want   []string
	}{
		"ASET-01 what is not there is created, what differs is updated": {
			change: func(r *changes.Request) {
				r.Generated = []changes.Application{want("a", `{"x":1}`), want("b", `{"x":2}`), want("c", `{"x":3}`)}
				r.There = []hub.Application{there("a", `{ "x": 1 }`, mine), there("b", `{"x":1}`, mine)}
			},
			want: []string{"create c", "update b"},
		},
		"ASET-12 an application that a person made in the same project becomes the set's": {
			change: func(r *changes.Request) {
				r.Generated, r.There = []changes.Application{want("a", `{}`)}, []hub.Application{there("a", `{}`, nil)}
			},
			want: []string{"update a"},
		},
		"SEC-D11 an application of another project, set or parent is left alone": {
			change: func(r *changes.Request) {
				r.Generated = []changes.Application{want("a", `{}`), want("b", `{}`), want("c", `{}`), want("d", `{}`)}
				foreign, child := there("a", `{"y":1}`, nil), there("c", `{}`, nil)
				foreign.Project, child.Parent = "bank", &hub.ApplicationKey{Namespace: "argocd", Name: "root"}
				r.There = []hub.Application{foreign, there("b", `{}`, theirs), child}
			},
			want: []string{
				"a: an application of that name is in another project", "b: it belongs to application set other", "c: it belongs to application root", "create d",
			},
		},
		"INV-3 FT-G3 an empty result deletes nothing": {
			change: func(r *changes.Request) { r.There = several(3) },
			want:   []string{"held 3 of 3"},
		},
		"INV-3 FT-G3 the only application is not deleted either": {
			change: func(r *changes.Request) { r.There = several(1) },
			want:   []string{"held 1 of 1"},
		},
		"FT-G3 few deletions need no consent": {
			change: func(r *changes.Request) { r.There, r.Generated = several(8), generated(3) },
			want:   []string{"delete app-3", "delete app-4", "delete app-5", "delete app-6", "delete app-7"},
		},
		"FT-G3 more than five, or a fifth of many, wait; what is new is created": {
			change: func(r *changes.Request) { r.There, r.Generated = several(12), append(generated(6), want("new", `{}`)) },
			want:   []string{"create new", "held 6 of 12"},
		},
		"FT-G3 a fifth of many needs no consent": {
			change: func(r *changes.Request) { r.There, r.Generated = several(40), append(generated(32), want("new", `{}`)) },
			want:   []string{"create new", "delete app-32", "delete app-33", "delete app-34", "delete app-35", "delete app-36", "delete app-37", "delete app-38", "delete app-39"},
		},
		"FT-G3 consent is to a list, and to parts of it": {
			change: func(r *changes.Request) {
				r.There = several(3)
				r.Set.Status.Held = &hub.HeldDeletion{Applications: []string{"argocd/app-0", "argocd/app-1", "argocd/app-2", "argocd/app-9"}, ConsentedBy: "ann"}
			},
			want: []string{"delete app-0", "delete app-1", "delete app-2"},
		},
		"FT-G3 consent is to nothing else": {
			change: func(r *changes.Request) {
				r.There = several(3)
				r.Set.Status.Held = &hub.HeldDeletion{Applications: []string{"argocd/app-0", "argocd/app-1"}, ConsentedBy: "ann"}
			},
			want: []string{"held 3 of 3"},
		},
		"AGEN-10 the last pull request may be closed": {
			change: func(r *changes.Request) {
				r.There = several(2)
				r.Spec.Generators = []hub.Generator{{PullRequest: json.RawMessage(`{}`)}}
			},
			want: []string{"delete app-0", "delete app-1"},
		},
		"FT-G3 a stated limit holds for all applications too": {
			change: func(r *changes.Request) {
				r.There = several(3)
				r.Limit, _ = changes.ParseLimit("100%")
			},
			want: []string{"delete app-0", "delete app-1", "delete app-2"},
		},
		"ASET-10 what is invalid stays as it is": {
			change: func(r *changes.Request) {
				r.There, r.Generated, r.Invalid = several(4), generated(3), []string{"app-3"}
			},
		},
		"ASET-14 create-only": {
			change: func(r *changes.Request) {
				r.Policy = changes.Policy{}
				r.There, r.Generated = several(3), []changes.Application{want("app-0", `{"x":1}`), want("new", `{}`)}
			},
			want: []string{"create new"},
		},
		"ASET-14 create-delete": {
			change: func(r *changes.Request) {
				r.Policy = changes.Policy{Delete: true}
				r.There, r.Generated = several(3), []changes.Application{want("app-0", `{"x":1}`), want("app-1", `{}`)}
			},
			want: []string{"delete app-2"},
		},
		"SEC-B13 beyond the limit nothing is created and nothing is deleted": {
			change: func(r *changes.Request) {
				r.Most = 3
				r.There, r.Generated = several(2), []changes.Application{want("a", `{}`), want("app-1", `{"x":1}`), want("b", `{}`), want("c", `{}`)}
			},
			want: []string{"create a", "create b", "left out 1", "update app-1"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request()
			c.change(&r)
			d, err := changes.Decide(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, summary(d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecideMerges(t *testing.T) {
	t.Parallel()
	r := request()
	r.Spec.PreservedFields = &hub.PreservedFields{Annotations: []string{"team"}, Labels: []string{"stage"}}
	r.Spec.IgnoreApplicationDifferences = []hub.IgnoredDifference{{JSONPointers: []string{"/spec/source/targetRevision"}}}
	old := there("a", `{"source":{"targetRevision":"v1","path":"a"},"info":[]}`, mine)
	old.Annotations = map[string]string{"team": "x", "gone": "y", "argocd.argoproj.io/refresh": "normal"}
	old.Labels = map[string]string{"stage": "one", "gone": "y"}
	w := want("a", `{"source":{"targetRevision":"main","path":"b"}}`)
	w.Labels = map[string]string{"own": "1"}
	r.There, r.Generated = []hub.Application{old}, []changes.Application{w}
	d, err := changes.Decide(r)
	if err != nil || len(d.Update) != 1 {
		t.Fatalf("%v %v", summary(d), err)
	}
	got := d.Update[0].Want
	t.Run("ASET-15 preserved labels and annotations stay, others go", func(t *testing.T) {
		if diff := cmp.Diff(map[string]string{"stage": "one", "own": "1"}, got.Labels); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"team": "x", "argocd.argoproj.io/refresh": "normal"}, got.Annotations); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("ASET-16 ignored differences stay", func(t *testing.T) {
		if diff := cmp.Diff(`{"source":{"path":"b","targetRevision":"v1"}}`, string(got.Spec)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPolicyOf(t *testing.T) {
	t.Parallel()
	own := hub.ApplicationsCreateOnly
	spec := hub.ApplicationSetSpec{SyncPolicy: &hub.ApplicationSetSyncPolicy{ApplicationsSync: &own}}
	all, none := changes.Policy{Update: true, Delete: true}, changes.Policy{}
	for name, c := range map[string]struct{ got, want changes.Policy }{
		"ASET-14 the set's own policy holds where none is set":            {changes.PolicyOf("", false, spec), none},
		"ASET-14 the tenant's policy wins":                                {changes.PolicyOf("sync", false, spec), all},
		"ASET-14 the tenant's policy wins unless sets may say otherwise":  {changes.PolicyOf("sync", true, spec), none},
		"ASET-14 create-update updates and does not delete":               {changes.PolicyOf("create-update", false, spec), changes.Policy{Update: true}},
		"ASET-14 a set without a policy does everything":                  {changes.PolicyOf("", true, hub.ApplicationSetSpec{}), all},
		"ASET-14 an unknown policy neither updates nor deletes (INV-3)":   {changes.PolicyOf("everything", false, spec), none},
		"ASET-14 create-delete deletes and does not update":               {changes.PolicyOf("create-delete", false, spec), changes.Policy{Delete: true}},
		"ASET-14 the tenant's create-only holds for a set without policy": {changes.PolicyOf("create-only", true, hub.ApplicationSetSpec{}), none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.got != c.want {
				t.Errorf("%+v, want %+v", c.got, c.want)
			}
		})
	}
}
