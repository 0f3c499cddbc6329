package agenttest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// respondTo makes the API server's answer to one request.
func respondTo(r *http.Request, code int, reason, message string) *http.Response {
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + message + `","reason":"` + reason + `","code":` + itoa(code) + `}`
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

func itoa(n int) string {
	return string([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)})
}

// writes are the requests that change one object.
func writes(r *http.Request, name string) bool {
	return r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+name) && r.URL.Query().Get("dryRun") == ""
}

func TestConflicts(t *testing.T) {
	w := newWorld(t)
	merged := func(name, color string) string { return annotated(configMap(name, color), "ServerSideApply=false") }
	t.Run("FT-K2 a write that conflicts with a change of another client is prepared again from live state", func(t *testing.T) {
		a := w.application()
		a.deploy(merged("merged", "red"))
		var n atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if writes(r, "merged") && n.Add(1) <= 3 {
				return respondTo(r, http.StatusConflict, "Conflict", "the object has been modified"), nil
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		a.deploy(merged("merged", "blue"))
		w.live(configMaps, "merged", data("color", "blue"))
		if n.Load() < 4 {
			t.Errorf("%d writes", n.Load())
		}
	})
	t.Run("FT-K2 a storm of conflicts ends in one clear sentence after a few tries, and the next operation goes through", func(t *testing.T) {
		a := w.application()
		a.deploy(merged("stormy", "red") + configMap("calm", "red"))
		var n atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if writes(r, "stormy") {
				n.Add(1)
				return respondTo(r, http.StatusConflict, "Conflict", "the object has been modified"), nil
			}
			return next.RoundTrip(r)
		})
		op := w.ended(a.begin(merged("stormy", "blue")+configMap("calm", "blue"), nil), "Failed")
		sent := n.Load()
		w.faults.set(nil)
		if got := messageOf(op, "stormy"); !strings.Contains(got, "has been modified") {
			t.Errorf("message is %q", got)
		}
		if got := statusOf(op, "calm"); got != "Synced" {
			t.Errorf("the other object is %s", got)
		}
		if sent > 10 {
			t.Errorf("%d writes in a row", sent)
		}
		a.deploy(merged("stormy", "blue") + configMap("calm", "blue"))
		a.synced()
	})
	t.Run("FT-K1 when the API server is overloaded the operation fails with that reason, and healing continues afterwards", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("busy", "red"))
		a.synced()
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if writes(r, "busy") {
				return respondTo(r, http.StatusInternalServerError, "InternalError", "etcdserver: request timed out"), nil
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		op := w.ended(a.begin(configMap("busy", "blue"), nil), "Error")
		if got := messageOf(op, "busy"); !strings.Contains(got, "etcdserver: request timed out") {
			t.Errorf("message is %q", got)
		}
		w.faults.set(nil)
		a.deploy(configMap("busy", "blue"))
		a.synced()
	})
}

func TestWatchEnds(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("api", "red"))
	a.synced()
	t.Run("FT-K5 a server that ends each watch after a moment misses nothing", func(t *testing.T) {
		var watches atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/configmaps") {
				watches.Add(1)
				resp.Body = brief(resp.Body, 1100*time.Millisecond)
			}
			return resp, err
		})
		defer w.faults.set(nil)
		w.stop()
		w.run()
		for i := range 8 {
			name := []string{"web", "api"}[i%2]
			w.edit(configMaps, name, "kubectl-edit", `{"data":{"color":"black"}}`)
			w.live(configMaps, name, data("color", "red"))
		}
		w.await("watches ended", func() bool { return true })
		for watches.Load() < 3 {
			w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
			w.live(configMaps, "web", data("color", "red"))
		}
		a.synced()
	})
	t.Run("FT-K5 a compaction in the middle of a list of many pages restarts the list", func(t *testing.T) {
		var pages, expired atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			q := r.URL.Query()
			if strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("watch") == "" && q.Get("limit") == "500" {
				pages.Add(1)
				q.Set("limit", "2") // what the server has fits into one page
				r = r.Clone(r.Context())
				r.URL.RawQuery = q.Encode()
				if q.Get("continue") != "" && expired.Add(1) <= 2 {
					return respondTo(r, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result"), nil
				}
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		w.stop()
		w.edit(configMaps, "api", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.change(func() { delete(w.fakeHub.apps, a.id) }) // so that Synced is said of what is healed
		w.run()
		w.live(configMaps, "api", data("color", "red"))
		a.synced()
		if expired.Load() < 3 || pages.Load() < 5 {
			t.Errorf("%d pages, %d after the first", pages.Load(), expired.Load())
		}
	})
	t.Run("FT-K1 FT-K5 the API server is unreachable for a while: nothing is decided without it, and later requests succeed", func(t *testing.T) {
		web, api := w.get(configMaps, "web").GetUID(), w.get(configMaps, "api").GetUID()
		if err := shared.HaltAPI(); err != nil {
			t.Fatal(err)
		}
		a.await("Unknown with the reason", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), "API server") || r.GetSync() == "Synced"
		})
		id := a.begin(configMap("web", "blue"), nil) // api is to be pruned
		if op := w.ended(id, "Error"); !strings.Contains(op.GetMessage(), "the API server did not answer") {
			t.Errorf("message is %q", op.GetMessage())
		}
		if err := shared.ResumeAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, old := range map[string]types.UID{"web": web, "api": api} {
			if o := w.get(configMaps, name); o.GetUID() != old || data("color", "red")(o) != nil {
				t.Errorf("without an operation %s became %v", name, o.Object)
			}
		}
		id, again := a.operation(nil) // as the hub tries again
		w.append(again)
		w.ended(id, "Succeeded")
		w.live(configMaps, "web", data("color", "blue"))
		w.waitDeleted(configMaps, "api")
		a.synced()
	})
}

// brief is a body that ends after a while.
func brief(body io.ReadCloser, after time.Duration) io.ReadCloser {
	b := &briefBody{ReadCloser: body}
	b.timer = time.AfterFunc(after, func() { _ = b.Close() })
	return b
}

type briefBody struct {
	io.ReadCloser
	once  sync.Once
	timer *time.Timer
}

func (b *briefBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (b *briefBody) Close() (err error) {
	b.once.Do(func() { b.timer.Stop(); err = b.ReadCloser.Close() })
	return err
}

func TestTokenExpires(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	var old string
	renew := func(w *world) {
		token, err := shared.AccountToken(t.Context(), w.home, "robot")
		if err != nil {
			t.Fatal(err)
		}
		old = token
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorldWith(t, func(w *world) {
		account := "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot, namespace: " + w.home + "}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: " + w.home + "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: robot, namespace: " + w.home + "}]\n"
		w.apply(account)
		t.Cleanup(func() { _ = shared.Delete(context.Background(), account) })
		renew(w)
		w.connect = &rest.Config{Host: shared.URL(), BearerTokenFile: file, TLSClientConfig: rest.TLSClientConfig{CAData: shared.CA()}}
	})
	a := w.application()
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("FT-K5 when its token expires every request is refused, and with the next token everything continues", func(t *testing.T) {
		expired := old
		var refused atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Header.Get("Authorization") == "Bearer "+expired {
				refused.Add(1)
				return respondTo(r, http.StatusUnauthorized, "Unauthorized", "Unauthorized"), nil
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool {
			return r.GetSync() == "OutOfSync" && strings.Contains(r.GetMessage(), "credentials")
		})
		renew(w)
		w.live(configMaps, "web", data("color", "red"))
		a.synced()
		if refused.Load() == 0 {
			t.Error("nothing was refused")
		}
	})
}
