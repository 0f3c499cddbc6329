package agenttest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// seen is what the agent asked the API server about objects of a test.
type seen struct {
	mu   sync.Mutex
	list []string // "METHOD name", with " dry" for a trial
}

func (s *seen) note(r *http.Request) {
	text := r.Method + " " + r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.URL.Query().Get("dryRun") != "" {
		text += " dry"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, text)
}

func (s *seen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.list, ", ")
}

// requests records what concerns single ConfigMaps until the test ends.
func (w *world) requests(t *testing.T) *seen {
	t.Helper()
	s := &seen{}
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/configmaps/") {
			s.note(r)
		}
		return next.RoundTrip(r)
	})
	t.Cleanup(func() { w.faults.set(nil) })
	return s
}

func TestWrites(t *testing.T) {
	w := newWorld(t)
	waved := func(name, color, wave string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: NS, annotations: {argocd.argoproj.io/sync-wave: '" + wave + "'}}\ndata: {color: " + color + "}\n"
	}
	t.Run("ENG-08 an operation of one step has no dry run, and writes only what differs", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("one", "red") + configMap("two", "red"))
		a.synced()
		asked := w.requests(t)
		a.deploy(configMap("one", "red") + configMap("two", "blue"))
		// Beside the operation the new target may be compared, which is a trial.
		if got := strings.ReplaceAll(asked.all(), "PATCH two dry, ", ""); got != "PATCH two" {
			t.Errorf("requests: %s", got)
		}
	})
	t.Run("ENG-08 one of several waves has a dry run of what has changed, before anything is written", func(t *testing.T) {
		a := w.application()
		a.deploy(waved("w0", "red", "0") + waved("w1", "red", "1"))
		a.synced()
		asked := w.requests(t)
		a.deploy(waved("w0", "red", "0") + waved("w1", "blue", "1"))
		got := asked.all()
		if strings.Contains(got, "w0") || !strings.Contains(got, "PATCH w1 dry") || !strings.HasSuffix(got, "PATCH w1") || strings.Count(got, "PATCH w1") != strings.Count(got, "PATCH w1 dry")+1 {
			t.Errorf("requests: %s", got)
		}
	})
	t.Run("INV-4 an apply of an object that is there names its uid", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("named", "red"))
		a.synced()
		uid := string(w.get(configMaps, "named").GetUID())
		var sent atomic.Value
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/named") && r.URL.Query().Get("dryRun") == "" {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				sent.Store(body)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		a.deploy(configMap("named", "blue"))
		var o struct{ Metadata struct{ UID string } }
		body, _ := sent.Load().([]byte)
		if err := json.Unmarshal(body, &o); err != nil || o.Metadata.UID != uid {
			t.Errorf("%v: uid %q was sent, want %q", err, o.Metadata.UID, uid)
		}
	})
	t.Run("AUTO-06 events of an object during its write are evaluated after the reply", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("flight", "red"))
		a.synced()
		maps := w.at(configMaps)
		var once sync.Once
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/flight") && r.URL.Query().Get("dryRun") == "" {
				once.Do(func() {
					_, err = maps.Patch(t.Context(), "flight", types.MergePatchType, []byte(`{"data":{"color":"black"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
				})
			}
			return resp, err
		})
		defer w.faults.set(nil)
		a.deploy(configMap("flight", "blue"))
		w.live(configMaps, "flight", data("color", "blue"))
		a.synced()
	})
	t.Run("AUTO-08 an empty map of ours that others fill is healed once, not repeatedly", func(t *testing.T) {
		a := w.application()
		a.deploy(strings.ReplaceAll(strings.Replace(webDeployment, "spec:\n", "spec:\n  strategy: {}\n", 1), "web", "empty"))
		a.synced()
		var writes atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/empty") {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		w.edit(deployments, "empty", "kubectl-edit", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		a.synced()
		w.edit(deployments, "empty", "kubectl-edit", `{"metadata":{"labels":{"seen":"yes"}}}`)
		w.caughtUp()
		a.synced()
		if n := writes.Load(); n > 1 {
			t.Errorf("%d writes", n)
		}
	})
	t.Run("SYNC-22 an API without server-side apply gets a merge, and the result reports it", func(t *testing.T) {
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps/aggregated") && r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not supported","reason":"UnsupportedMediaType","code":415}`
				return &http.Response{StatusCode: 415, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		a := w.application()
		op := a.deploy(configMap("aggregated", "red"))
		if got := messageOf(op, "aggregated"); !strings.Contains(got, "merged, because its API has no server-side apply") {
			t.Errorf("message is %q", got)
		}
		a.deploy(configMap("aggregated", "blue"))
		w.live(configMaps, "aggregated", data("color", "blue"))
		a.synced()
	})
	t.Run("SYNC-27 metadata of the namespace has a field manager of its own", func(t *testing.T) {
		a := w.application()
		a.policy.SyncOptions = []string{"CreateNamespace=true"}
		w.ended(a.begin(configMap("inside", "red"), func(o *linkv1.Operation) {
			o.Options.NamespaceLabels = map[string]string{"team": "shop"}
		}), "Succeeded")
		ns, err := shared.Dynamic().Resource(namespaces).Get(t.Context(), w.namespace, metav1Get)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range ns.GetManagedFields() {
			if e.Manager == "capstan-ns" && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), "f:team") {
				return
			}
		}
		t.Errorf("managers: %v", ns.GetManagedFields())
	})
}
