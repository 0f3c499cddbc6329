package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/watch"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// server is an API server that says what a test wants.
type server struct {
	mu       sync.Mutex
	asked    []string
	handlers map[string]func(w http.ResponseWriter, r *http.Request) // by path
	http     *httptest.Server
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{handlers: map[string]func(http.ResponseWriter, *http.Request){}}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.Path)
		h := s.handlers[r.URL.Path]
		s.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		h(w, r)
	}))
	t.Cleanup(s.http.Close)
	s.text("/version", `{"gitVersion":"v1.35.4"}`)
	return s
}

func (s *server) on(path string, h func(http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[path] = h
}

func (s *server) text(path, body string) {
	s.on(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
}

func (s *server) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.asked {
		if p == path {
			n++
		}
	}
	return n
}

func (s *server) api(t *testing.T) *watch.API {
	t.Helper()
	base, err := url.Parse(s.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	return watch.NewAPI(s.http.Client(), base)
}

const coreKinds = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","freshness":"Current","resources":[
 {"resource":"configmaps","responseKind":{"group":"","version":"","kind":"ConfigMap"},"scope":"Namespaced","verbs":["get","list"]},
 {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get","list"]},
 {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster","verbs":["get"]},
 {"resource":"bindings","responseKind":{"kind":"Binding"},"scope":"Namespaced","verbs":["create"]}]}]}]}`

func groupsWith(freshness, kinds string) string {
	return `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"` + freshness + `","resources":[` + kinds + `]}]}]}`
}

const metricsKind = `{"resource":"nodes","responseKind":{"kind":"NodeMetrics"},"scope":"Cluster","verbs":["get"]}`

func TestMapper(t *testing.T) {
	t.Parallel()
	configMap := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	metrics := schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "NodeMetrics"}
	other := schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Other"}
	t.Run("discovery is read once, and again only for an unknown kind", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", coreKinds)
		s.text("/apis", groupsWith("Current", metricsKind))
		m := watch.NewMapper(s.api(t))
		begun := time.Now()
		for range 5 {
			gvr, namespaced, err := m.Resource(t.Context(), configMap)
			if err != nil || gvr.Resource != "configmaps" || !namespaced {
				t.Fatalf("%v %v %v", gvr, namespaced, err)
			}
		}
		if n := s.count("/api"); n != 1 {
			t.Errorf("read %d times", n)
		}
		for range 5 {
			if _, _, err := m.Resource(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Nothing"}); fault.KindOf(err) != fault.Missing {
				t.Errorf("error %v", err)
			}
		}
		if n, took := s.count("/api"), time.Since(begun); n > 2+int(took/time.Second) {
			t.Errorf("read %d times within %s", n, took)
		}
		if _, _, err := m.Resource(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Binding"}); fault.KindOf(err) != fault.Missing {
			t.Error("a kind that cannot be read was found")
		}
		if m.Version() != "v1.35.4" {
			t.Errorf("version %q", m.Version())
		}
		if got := m.APIVersions(); !slices.Contains(got, "v1/ConfigMap") || !slices.Contains(got, "metrics.k8s.io/v1beta1") || !slices.IsSorted(got) {
			t.Errorf("API versions %v", got)
		}
	})
	t.Run("ENG-15 a kind of another group is named with the groups that serve it", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", coreKinds)
		s.text("/apis", groupsWith("Current", metricsKind))
		m := watch.NewMapper(s.api(t))
		for _, wrong := range []schema.GroupVersionKind{
			{Group: "extensions", Version: "v1beta1", Kind: metrics.Kind}, {Version: "v1", Kind: metrics.Kind}, {Group: "apps", Version: "v1", Kind: metrics.Kind},
		} {
			_, _, err := m.Resource(t.Context(), wrong)
			if stream := fault.Sentence(err); fault.KindOf(err) != fault.Missing || !strings.Contains(stream, "it serves a kind of that name as metrics.k8s.io/v1beta1") ||
				!strings.Contains(stream, "apiVersion metrics.k8s.io/v1beta1") {
				t.Errorf("%s: %q", wrong, stream)
			}
		}
		_, _, err := m.Resource(t.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ConfigMap"})
		if stream := fault.Sentence(err); !strings.Contains(stream, "as v1 (") {
			t.Errorf("a kind of the core group: %q", stream)
		}
	})
	t.Run("FT-K4 a group whose server does not respond keeps its known kinds", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", coreKinds)
		s.text("/apis", groupsWith("Current", metricsKind))
		m := watch.NewMapper(s.api(t))
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.text("/apis", groupsWith("Stale", ""))
		m.Forget(other)
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Known(metrics); !ok {
			t.Error("a kind of a server that is away is taken for gone")
		}
		s.text("/apis", groupsWith("Current", ""))
		changed := m.Changed()
		m.Forget(other)
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-changed
		if _, ok := m.Known(metrics); ok {
			t.Error("a kind that is gone is still known")
		}
	})
	t.Run("FT-K4 INV-3 an unknown kind of a group whose server does not respond is not reported as unserved", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", coreKinds)
		s.text("/apis", groupsWith("Stale", ""))
		m := watch.NewMapper(s.api(t))
		_, _, err := m.Resource(t.Context(), metrics)
		var away interface{ GroupAway() }
		if fault.KindOf(err) != fault.Offline || !errors.As(err, &away) {
			t.Errorf("error %v", err)
		}
		if _, _, err := m.Resource(t.Context(), schema.GroupVersionKind{Group: "none", Version: "v1", Kind: "Nothing"}); fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
	t.Run("FT-K4 a kind is looked up again after the server has shown that its entry is wrong, and not before", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", coreKinds)
		s.text("/apis", groupsWith("Current", metricsKind))
		m := watch.NewMapper(s.api(t))
		if _, _, err := m.Resource(t.Context(), metrics); err != nil {
			t.Fatal(err)
		}
		s.text("/apis", groupsWith("Current", ""))
		if _, _, err := m.Resource(t.Context(), metrics); err != nil {
			t.Errorf("what is known was asked for again: %v", err)
		}
		m.Forget(metrics)
		if _, _, err := m.Resource(t.Context(), metrics); fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
		if _, _, err := m.Resource(t.Context(), configMap); err != nil {
			t.Errorf("another kind was forgotten too: %v", err)
		}
	})
	t.Run("a server without aggregated discovery is read group by group", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.text("/api", `{"kind":"APIVersions","versions":["v1"]}`)
		s.text("/apis", `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1"}]},{"name":"away","versions":[{"groupVersion":"away/v1"}]}]}`)
		s.text("/api/v1", `{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get"]},{"name":"pods/log","kind":"Pod","verbs":["get"]}]}`)
		s.text("/apis/apps/v1", `{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get"]}]}`)
		m := watch.NewMapper(s.api(t))
		gvr, namespaced, err := m.Resource(t.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
		if err != nil || gvr.Resource != "deployments" || !namespaced {
			t.Errorf("%v %v %v", gvr, namespaced, err)
		}
	})
	t.Run("a server that does not respond is Offline", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		m := watch.NewMapper(s.api(t))
		if _, _, err := m.Resource(t.Context(), configMap); fault.KindOf(err) != fault.Offline {
			t.Errorf("error %v", err)
		}
		s.text("/api", "not JSON")
		if _, _, err := m.Resource(t.Context(), configMap); fault.KindOf(err) != fault.Offline {
			t.Errorf("error %v", err)
		}
	})
}

// sink keeps what it is told.
type sink struct {
	mu     sync.Mutex
	events []string
	wake   chan struct{}
}

func (s *sink) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *sink) OnUpdate(_ context.Context, o *manifest.Object) {
	s.say("seen %s %s", o.GetName(), o.GetResourceVersion())
}
func (s *sink) OnDelete(_ context.Context, o *manifest.Object) { s.say("gone %s", o.GetName()) }
func (s *sink) OnReplace(_ context.Context, gvk schema.GroupVersionKind, _, version string, back bool, list map[string]struct{}) {
	s.say("listed %s %s %d back=%v", gvk.Kind, version, len(list), back)
}

func (s *sink) Broken(_ context.Context, _ schema.GroupVersionKind, _ string, err error) {
	var out interface{ LeftOut() }
	if errors.As(err, &out) {
		s.say("left out %s", fault.KindOf(err))
		return
	}
	s.say("broken %s", fault.KindOf(err))
}

func (s *sink) Left(_ context.Context, gvk schema.GroupVersionKind) { s.say("left %s", gvk.Kind) }

// await waits until a line was said, and forgets what came before it.
func (s *sink) await(t *testing.T, line string) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		s.mu.Lock()
		i, wake := slices.Index(s.events, line), s.wake
		if i >= 0 {
			s.events = s.events[i+1:]
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		select {
		case <-wake:
		case <-limit.C:
			t.Fatalf("%q was never said; heard %q", line, s.events)
		}
	}
}

type nobody struct{}

func (nobody) Child(string, watch.Record)     {}
func (nobody) ChildGone(string, watch.Record) {}

func none(*manifest.Object) (string, string) { return "", "" }

// cluster is a server with ConfigMaps whose watches a test feeds.
func cluster(t *testing.T) (s *server, heard *sink, feed chan string) {
	t.Helper()
	s = newServer(t)
	s.text("/api", coreKinds)
	s.text("/apis", groupsWith("Current", ""))
	feed = make(chan string)
	heard = &sink{wake: make(chan struct{})}
	return s, heard, feed
}

func start(t *testing.T, s *server, heard *sink) *watch.Informers {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.http.URL, QPS: -1, WarningHandlerWithContext: watch.Warnings{}})
	if err != nil {
		t.Fatal(err)
	}
	w := watch.New(client, watch.NewMapper(s.api(t)), heard, watch.NewTree(none, nobody{}), slog.New(slog.DiscardHandler))
	w.SetKinds([]schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.http.CloseClientConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestWatch(t *testing.T) {
	t.Parallel()
	t.Run("CMPR-02 a kind that is not wanted any more is left, and listed again when it is wanted again", func(t *testing.T) {
		t.Parallel()
		s, heard, _ := cluster(t)
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[%s]}`, object("a", "1"))
		})
		w := start(t, s, heard)
		for range 2 {
			heard.await(t, "listed ConfigMap 10 2 back=false")
			w.SetKinds(nil)
			heard.await(t, "left ConfigMap")
			w.SetKinds([]schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}})
		}
		heard.await(t, "listed ConfigMap 10 2 back=false")
	})
	t.Run("FT-K5 pages, events, bookmarks, the end of a watch, 410 and a restored server", func(t *testing.T) {
		t.Parallel()
		s, heard, feed := cluster(t)
		var mu sync.Mutex
		var from []string
		lists := 0
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("watch") != "" {
				mu.Lock()
				from = append(from, q.Get("resourceVersion"))
				mu.Unlock()
				w.(http.Flusher).Flush()
				for {
					select {
					case line := <-feed:
						if line == "" {
							return
						}
						fmt.Fprint(w, line)
						w.(http.Flusher).Flush()
						if strings.Contains(line, `"ERROR"`) {
							return // what is fed next is for the watch after it
						}
					case <-r.Context().Done():
						return
					}
				}
			}
			if q.Get("limit") == "1" { // after the end that came too early
				fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"15"},"items":[]}`)
				return
			}
			mu.Lock()
			lists++
			n := lists
			mu.Unlock()
			switch {
			case n == 3: // after the 410
				fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"4"},"items":[]}`)
			case q.Get("continue") == "":
				fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10","continue":"more"},"items":[%s]}`, object("a", "1"))
			default:
				fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[%s]}`, object("b", "2"))
			}
		})
		start(t, s, heard)
		heard.await(t, "seen a 1")
		heard.await(t, "seen b 2")
		heard.await(t, "listed ConfigMap 10 4 back=false")
		feed <- event("MODIFIED", object("a", "11"))
		heard.await(t, "seen a 11")
		feed <- event("BOOKMARK", object("", "15"))
		feed <- "" // the server ends the watch
		feed <- event("DELETED", object("a", "16"))
		heard.await(t, "gone a")
		feed <- event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
		heard.await(t, "listed ConfigMap 4 0 back=true")
		feed <- event("ADDED", object("c", "5"))
		heard.await(t, "seen c 5")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(from, []string{"10", "15", "4"}) {
			t.Errorf("watches began at %v", from)
		}
	})
	t.Run("FT-K9 a refusal is reported, and so is its end", func(t *testing.T) {
		t.Parallel()
		s, heard, _ := cluster(t)
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		})
		start(t, s, heard)
		heard.await(t, "broken denied")
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"4"},"items":[]}`)
		})
		heard.await(t, "listed ConfigMap 4 0 back=false")
		heard.await(t, "broken ")
	})
	t.Run("a kind that is not served is reported as Missing", func(t *testing.T) {
		t.Parallel()
		s, heard, _ := cluster(t)
		s.text("/api", `{"items":[]}`)
		start(t, s, heard)
		heard.await(t, "broken missing")
	})
}

// family is the children that are known, by application.
type family struct{ is map[string]string }

func (f *family) Child(app string, r watch.Record)   { f.is[r.Name] = app + " " + r.Health }
func (f *family) ChildGone(_ string, r watch.Record) { delete(f.is, r.Name) }

func child(kind, name, uid, parent, phase string) *manifest.Object {
	version := "v1"
	if kind == "ReplicaSet" {
		version = "apps/v1"
	}
	var o manifest.Object
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":"n","uid":%q,"ownerReferences":[{"uid":"other"},{"uid":%q,"controller":true}]},"status":{"phase":%q}}`, version, kind, name, uid, parent, phase)
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(err)
	}
	return &o
}

func TestTree(t *testing.T) {
	t.Parallel()
	f := &family{is: map[string]string{}}
	tree := watch.NewTree(func(o *manifest.Object) (string, string) {
		status, _ := o.Object["status"].(map[string]any)
		phase, _ := status["phase"].(string)
		return phase, ""
	}, f)
	check := func(what, want string) {
		t.Helper()
		var have []string
		for name, v := range f.is {
			have = append(have, name+" "+v)
		}
		slices.Sort(have)
		if got := strings.Join(have, ", "); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	watch.SeeForTest(tree, child("Pod", "pod", "p", "rs", "Progressing"))
	check("a child whose owner is not known yet belongs to nobody", "")
	tree.Root("dep", "shop")
	watch.SeeForTest(tree, child("ReplicaSet", "set", "rs", "dep", "Healthy"))
	check("owner after child", "pod shop Progressing, set shop Healthy")
	watch.SeeForTest(tree, child("Pod", "pod", "p", "rs", "Healthy"))
	check("a child changes", "pod shop Healthy, set shop Healthy")
	if !tree.Has("shop", "", "Pod", "n", "pod") || tree.Has("other", "", "Pod", "n", "pod") {
		t.Error("ISO-1 a child belongs to the wrong application")
	}
	tree.Root("rs", "direct")
	check("a managed object is no child, and what it owns is its application's", "pod direct Healthy")
	tree.Unroot("rs")
	check("and back", "pod shop Healthy, set shop Healthy")
	watch.SeeForTest(tree, child("Pod", "pod", "p", "elsewhere", "Healthy"))
	check("a child is adopted by somebody else", "set shop Healthy")
	watch.SeeForTest(tree, child("Pod", "loop", "l", "l", "Healthy"))
	tree.Root("l", "shop")
	tree.Unroot("l")
	check("an owner of itself is no trouble", "set shop Healthy")
	tree.Unroot("dep")
	check("the managed object goes", "")
}
