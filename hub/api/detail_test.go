package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// A viewer puts an application together from the events of a stream.
type viewer struct {
	w           *world
	t           *testing.T
	secret      string
	name        string
	events      <-chan treeEvent
	application map[string]any
	tree        apimodel.Tree
}

// view opens a stream with the details of an application, for a client that has
// a tree.
func (w *world) view(t *testing.T, secret, name string, tree apimodel.Tree) *viewer {
	t.Helper()
	return &viewer{
		w: w, t: t, secret: secret, name: name, tree: tree,
		events: w.treeStream(t, secret, "/api/v1/stream?view=row&detail=argocd/"+name+"&tree="+tree.Tag),
	}
}

// next applies the next event with details, and returns it.
func (v *viewer) next() apimodel.StreamEvent {
	v.t.Helper()
	for e := range v.events {
		if e.name == "detail" {
			return v.apply(e.data)
		}
	}
	v.t.Fatal("the stream ended")
	return apimodel.StreamEvent{}
}

func (v *viewer) apply(data string) (e apimodel.StreamEvent) {
	v.t.Helper()
	var raw struct {
		Application map[string]any
		Changed     map[string]any
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		v.t.Fatalf("%v in %s", err, data)
	}
	if err := json.Unmarshal([]byte(data), &raw); err != nil {
		v.t.Fatalf("%v in %s", err, data)
	}
	if e.Namespace != "argocd" || e.Name != v.name {
		v.t.Errorf("the event is about another application: %s", data)
	}
	if e.Gone {
		return e
	}
	if raw.Application != nil {
		v.application = raw.Application
	}
	if status, has := raw.Changed["status"].(map[string]any); has {
		merge(v.application["status"].(map[string]any), status)
		delete(raw.Changed, "status")
	}
	merge(v.application, raw.Changed)
	nodes := e.Tree.Nodes
	if e.Base != "" {
		if e.Base != v.tree.Tag {
			v.t.Errorf("the event has the differences to %q, and the client has %q", e.Base, v.tree.Tag)
		}
		nodes = slices.Clone(v.tree.Nodes)
		for _, i := range slices.Backward(e.Removed) {
			nodes = slices.Delete(nodes, i, i+1)
		}
		for k, i := range e.At {
			nodes = slices.Insert(nodes, i, e.Tree.Nodes[k])
		}
	}
	v.tree = e.Tree
	v.tree.Nodes = nodes
	return e
}

func merge(into, from map[string]any) {
	for name, value := range from {
		if value == nil {
			delete(into, name)
			continue
		}
		into[name] = value
	}
}

// differs says in what the viewer has something else than the API answers now.
// The cursor and the time of the last contact go on without any change.
func (v *viewer) differs() string {
	v.t.Helper()
	var application map[string]any
	v.w.call(v.secret, "GET", "/api/v1/applications/argocd/"+v.name, nil).ok(200).into(&application)
	delete(application["status"].(map[string]any), "resources")
	want, got := v.w.treeOf(v.secret, v.name), v.tree
	want.Cursor, want.AsOf, got.Cursor, got.AsOf = "", time.Time{}, "", time.Time{}
	return cmp.Diff(application, v.application) + cmp.Diff(want, got)
}

// same takes events until the viewer has what the API answers.
func (v *viewer) same() {
	v.t.Helper()
	for v.differs() != "" {
		v.next()
	}
}

func (w *world) treeOf(secret, name string) (tree apimodel.Tree) {
	w.t.Helper()
	w.call(secret, "GET", "/api/v1/applications/argocd/"+name+"/tree", nil).ok(200).into(&tree)
	return tree
}

// An observer reports what a cluster has of applications.
type observer struct {
	w   *world
	seq int64
}

func (o *observer) report(name string, report func(hub.ApplicationID, *hub.Observation)) {
	o.w.t.Helper()
	o.seq++
	storetest.In(o.w.t, o.w.DB, o.w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", name)
		if err != nil {
			return err
		}
		out := hub.Observation{Epoch: "e", Seq: o.seq}
		report(a.ID, &out)
		_, err = tx.PutObservation(ctx, a.Cluster, out)
		return err
	})
}

// pod reports a pod with a message.
func (o *observer) pod(name, pod, message string) {
	o.w.t.Helper()
	o.report(name, func(id hub.ApplicationID, out *hub.Observation) {
		out.Resources = []hub.Resource{{Application: id, UID: pod + "-uid", Version: "v1", Kind: "Pod", Namespace: "web", Name: pod, Message: message}}
	})
}

func detailWorld(t *testing.T, names ...string) (*world, string, *observer) {
	t.Helper()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for _, name := range names {
		w.call(admin, "POST", "/api/v1/applications", application(name, toProd)).ok(201)
	}
	return w, admin, &observer{w: w}
}

func toProd(s map[string]any) { s["destination"] = map[string]any{"name": "prod", "namespace": "web"} }

func TestStreamWithDetails(t *testing.T) {
	t.Parallel()
	w, admin, cluster := detailWorld(t, "web", "api")
	for _, pod := range []string{"one", "two", "three"} {
		cluster.pod("web", pod, "")
	}
	v := w.view(t, admin, "web", apimodel.Tree{})
	t.Run("API-09 it begins with the application and its tree", func(t *testing.T) {
		if e := v.next(); e.Application.Metadata.Name != "web" || e.Base != "" || len(e.Tree.Nodes) != 3 {
			t.Errorf("it begins with %+v", e)
		}
		if diff := v.differs(); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("API-09 one object that changes is sent alone", func(t *testing.T) {
		cluster.pod("api", "of-api", "")
		cluster.pod("web", "two", "it waits")
		e := v.next()
		if len(e.Tree.Nodes) != 1 || e.Tree.Nodes[0].Name != "two" || e.Tree.Nodes[0].Message != "it waits" || e.Application.Metadata.Name != "" {
			t.Errorf("the event has %+v, removed %v, at %v, changed %s", e.Tree.Nodes, e.Removed, e.At, e.Changed)
		}
		v.same()
	})
	t.Run("API-09 an object that is gone is named by its position", func(t *testing.T) {
		cluster.report("web", func(id hub.ApplicationID, out *hub.Observation) {
			out.Gone = []hub.ResourceGone{{Application: id, UID: "three-uid", Kind: "Pod", Namespace: "web", Name: "three"}}
		})
		if e := v.next(); len(e.Tree.Nodes) != 0 || len(e.At) != 0 || len(e.Removed) != 1 {
			t.Errorf("the event has %+v, removed %v, at %v, changed %s", e.Tree.Nodes, e.Removed, e.At, e.Changed)
		}
		v.same()
	})
	t.Run("API-09 fields of the application that differ are sent, and no others", func(t *testing.T) {
		w.call(admin, "PUT", "/api/v1/applications/argocd/web", application("web", toProd, func(s map[string]any) { s["revisionHistoryLimit"] = 3 })).ok(200)
		e := v.next()
		if text := string(e.Changed); !strings.Contains(text, "revisionHistoryLimit") || strings.Contains(text, `"kind":"Application"`) || e.Base == "" || len(e.At) > 0 {
			t.Errorf("the event has %+v, removed %v, at %v, changed %s", e.Tree.Nodes, e.Removed, e.At, e.Changed)
		}
		v.same()
	})
	t.Run("API-09 the coming and going of the cluster's agent is a change", func(t *testing.T) {
		var prod struct{ ID hub.ClusterID }
		w.call(admin, "GET", "/api/v1/clusters/prod", nil).ok(200).into(&prod)
		at := hub.Attachment{Tenant: w.Tenant("acme"), Cluster: prod.ID, Session: "s", Replica: "r", Epoch: "e", Instance: "one", Leader: true, At: time.Now()}
		if err := w.DB.System().Connected(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		for !v.next().Tree.Connected {
		}
		v.same()
		if err := w.DB.System().Disconnected(t.Context(), at.Tenant, at.Cluster, at.Session); err != nil {
			t.Fatal(err)
		}
		for v.next().Tree.Connected {
		}
		v.same()
	})
	t.Run("API-09 a tree that the client has is not sent again", func(t *testing.T) {
		held := w.treeOf(admin, "web")
		again := w.view(t, admin, "web", held)
		if e := again.next(); e.Base != held.Tag || len(e.Tree.Nodes) != 0 || e.Application.Metadata.Name != "web" {
			t.Errorf("it begins with %+v", e)
		}
		again.same()
		cluster.pod("web", "one", "it runs")
		again.same()
		old := w.view(t, admin, "web", held)
		if e := old.next(); e.Base != "" || len(e.Tree.Nodes) != 2 {
			t.Errorf("for an old tag it begins with %+v", e)
		}
	})
	t.Run("API-09 SEC-G2 one that may not be seen is gone like one that is not there", func(t *testing.T) {
		var messages []string
		for secret, name := range map[string]string{w.Admin("other"): "web", admin: "none", w.User("acme", "blind"): "web"} {
			v := w.view(t, secret, name, apimodel.Tree{})
			for e := range v.events {
				if e.name == "detail" {
					messages = append(messages, strings.Replace(e.data, name, "it", 1))
					break
				}
			}
		}
		if want := slices.Repeat([]string{`{"gone":true,"id":"","kind":"detail","name":"it","namespace":"argocd"}`}, 3); !slices.Equal(messages, want) {
			t.Errorf("they begin with %q", messages)
		}
		w.call(admin, "GET", "/api/v1/stream?detail=web", nil).fails(400)
		w.call(admin, "GET", "/api/v1/stream?detail=", nil).fails(400)
	})
	t.Run("API-09 SEC-D8 no details come after the right is lost, and the stream goes on", func(t *testing.T) {
		reader := w.User("acme", "reader")
		const both, one = "p, reader, applications, get, default/*, allow\n", "p, reader, applications, get, default/api, allow\n"
		w.setPolicy(admin, map[string]any{"policy.csv": both}).ok(200)
		seen := w.view(t, reader, "web", apimodel.Tree{})
		seen.next()
		w.setPolicy(admin, map[string]any{"policy.csv": one}).ok(200)
		for !seen.next().Gone {
		}
		cluster.pod("web", "unseen", "")
		w.setPolicy(admin, map[string]any{"policy.csv": both}).ok(200)
		cluster.pod("web", "one", "unseen")
		w.call(admin, "PUT", "/api/v1/applications/argocd/api", application("api", toProd, func(s map[string]any) { s["revisionHistoryLimit"] = 4 })).ok(200)
		for e := range seen.events {
			if e.name == "detail" {
				t.Errorf("there is another detail: %s", e.data)
			}
			if e.name == "application" && strings.Contains(e.data, `"name":"api"`) {
				break
			}
		}
	})
	t.Run("API-09 a deletion is said once, also if another application gets its name", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web?cascade=false", nil)
		w.call(admin, "POST", "/api/v1/applications/argocd/web/abandon", map[string]any{})
		w.call(admin, "POST", "/api/v1/applications", application("web", toProd)).ok(201)
		for !v.next().Gone {
		}
		w.call(admin, "POST", "/api/v1/applications", application("last", toProd)).ok(201)
		for e := range v.events {
			if e.name == "detail" {
				t.Errorf("there is another detail: %s", e.data)
			}
			if e.name == "application" && strings.Contains(e.data, `"name":"last"`) {
				break
			}
		}
	})
}

func TestStreamWithoutDetails(t *testing.T) {
	t.Parallel()
	w, admin, cluster := detailWorld(t, "web")
	t.Run("API-09 a stream has details only for who asks for them", func(t *testing.T) {
		plain, detailed := w.treeStream(t, admin, "/api/v1/stream"), w.treeStream(t, admin, "/api/v1/stream?detail=argocd/web")
		cluster.pod("web", "one", "")
		w.call(admin, "POST", "/api/v1/applications", application("end")).ok(201)
		text := func(events <-chan treeEvent, ignored string) (out []string) {
			for e := range events {
				if e.name != ignored && e.name != "alive" && e.name != "" {
					out = append(out, e.name+" "+e.data)
				}
				if strings.Contains(e.data, `"name":"end"`) {
					return out
				}
			}
			t.Fatal("the stream ended")
			return nil
		}
		if diff := cmp.Diff(slices.Compact(text(plain, "")), slices.Compact(text(detailed, "detail"))); diff != "" {
			t.Error(diff)
		}
	})
}

// Whatever happens to an application, its viewer has in the end what the API
// answers.
func TestStreamBringsWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	w, admin, cluster := detailWorld(t, "web", "api")
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	health := []hub.HealthStatus{"Healthy", "Progressing", "Degraded"}
	kinds := []string{"Pod", "ConfigMap", "Deployment"}
	object := func(id hub.ApplicationID) hub.Resource {
		kind, name := kinds[random.IntN(3)], fmt.Sprintf("o%d", random.IntN(8))
		r := hub.Resource{Application: id, Version: "v1", Kind: kind, Namespace: "web", Name: name, Managed: random.IntN(2) == 0, Health: health[random.IntN(3)]}
		if random.IntN(4) > 0 { // one that is missing has none
			r.UID = fmt.Sprintf("%s-%s-%d", kind, name, random.IntN(2))
		}
		if random.IntN(2) == 0 {
			r.Parent = "Deployment-o1-0"
		}
		return r
	}
	act := map[string]func(){
		"observe": func() {
			cluster.report("web", func(id hub.ApplicationID, out *hub.Observation) {
				for range 1 + random.IntN(5) {
					r := object(id)
					if slices.ContainsFunc(out.Resources, func(o hub.Resource) bool { return o.Kind == r.Kind && o.Name == r.Name }) {
						continue
					}
					out.Resources = append(out.Resources, r)
				}
			})
		},
		"lose": func() {
			cluster.report("web", func(id hub.ApplicationID, out *hub.Observation) {
				for range 1 + random.IntN(4) {
					r := object(id)
					out.Gone = append(out.Gone, hub.ResourceGone{Application: id, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
				}
			})
		},
		"state": func() {
			cluster.report("web", func(id hub.ApplicationID, out *hub.Observation) {
				out.Applications = []hub.ApplicationObservation{{Application: id, Generation: cluster.seq, Sync: "Synced", Health: health[random.IntN(3)]}}
			})
		},
		"edit": func() {
			w.call(admin, "PUT", "/api/v1/applications/argocd/web", application("web", toProd, func(s map[string]any) {
				if n := random.IntN(4); n > 0 {
					s["revisionHistoryLimit"] = n
				}
			})).ok(200)
		},
		"another": func() { cluster.pod("api", "pod", fmt.Sprint(random.IntN(3))) },
	}
	names := []string{"another", "edit", "lose", "observe", "observe", "state"}
	v := w.view(t, admin, "web", apimodel.Tree{})
	v.next()
	for i := range 40 {
		for range 1 + random.IntN(3) {
			act[names[random.IntN(len(names))]]()
		}
		if i%5 == 4 { // somebody comes again with what they have
			v = w.view(t, admin, "web", v.tree)
			v.next()
		}
		v.same()
	}
	if len(v.tree.Nodes) == 0 || v.tree.Tag == "" {
		t.Errorf("the tree in the end is %+v", v.tree)
	}
}
