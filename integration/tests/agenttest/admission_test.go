package agenttest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// An opinion is what an admission webhook says of one object.
type opinion struct {
	refuse string // why; empty: it is let in
	patch  string // JSON patch
	drop   bool   // the connection ends without an answer
	hang   bool   // the API server is kept waiting until it gives up
}

// webhook serves reviews of admission and of conversion to the API server.
type webhook struct {
	*httptest.Server
	asked  atomic.Int32
	mu     sync.Mutex
	decide func(name string) opinion // nil: everything is let in
	away   atomic.Bool               // conversions are not answered
}

func newWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

// set changes what the webhook says.
func (h *webhook) set(decide func(name string) opinion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decide = decide
}

// ca is its certificate as manifests have it.
func (h *webhook) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
}

func (h *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	request, _ := review["request"].(map[string]any)
	answer := map[string]any{"uid": request["uid"]}
	if r.URL.Path == "/convert" {
		if h.away.Load() {
			panic(http.ErrAbortHandler)
		}
		objects, _ := request["objects"].([]any)
		for _, o := range objects {
			o.(map[string]any)["apiVersion"] = request["desiredAPIVersion"]
		}
		answer["convertedObjects"], answer["result"] = objects, map[string]any{"status": "Success"}
	} else {
		name, _ := request["name"].(string)
		h.mu.Lock()
		decide := h.decide
		h.mu.Unlock()
		var o opinion
		if decide != nil && name != "probe" {
			o = decide(name)
		}
		h.asked.Add(1)
		switch {
		case o.drop:
			panic(http.ErrAbortHandler)
		case o.hang:
			<-r.Context().Done()
			return
		case o.patch != "":
			answer["patchType"], answer["patch"] = "JSONPatch", base64.StdEncoding.EncodeToString([]byte(o.patch))
		}
		answer["allowed"] = o.refuse == ""
		if o.refuse != "" {
			answer["status"] = map[string]any{"message": o.refuse, "code": 403}
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})
}

// admit makes the API server ask a webhook about the ConfigMaps and Secrets of
// the test's namespace, and waits until it does.
func (w *world) admit(h *webhook, kind, policy string) {
	w.t.Helper()
	name := cut(w.namespace + "-" + strings.ToLower(kind+"-"+policy))
	config := fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: policy.example.com
  clientConfig: {url: "%s/admit", caBundle: %s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps, secrets]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 4
  failurePolicy: %s
`, kind, name, h.URL, h.ca(), w.namespace, policy)
	if err := shared.Apply(w.t.Context(), config); err != nil { // as it is: the certificate may have anything in it
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = shared.Delete(context.Background(), config) })
	before := h.asked.Load()
	probe := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "probe"}}}
	for h.asked.Load() == before {
		_, err := w.at(configMaps).Create(w.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInternalError(err) {
			w.t.Fatal(err)
		}
	}
}

// only returns one object an opinion.
func only(object string, o opinion) func(string) opinion {
	return func(name string) opinion {
		if name == object {
			return o
		}
		return opinion{}
	}
}

func TestAdmission(t *testing.T) {
	w := newWorld(t)
	strict, lenient, changing := newWebhook(t), newWebhook(t), newWebhook(t)
	w.admit(strict, "Validating", "Fail")
	w.admit(lenient, "Validating", "Ignore")
	w.admit(changing, "Mutating", "Fail")
	t.Run("FT-K3 a webhook's denial is reported with its reason, only for that object", func(t *testing.T) {
		a := w.application()
		strict.set(only("refused", opinion{refuse: "team label is missing"}))
		defer strict.set(nil)
		op := w.ended(a.begin(configMap("let-in", "red")+configMap("refused", "red"), nil), "Failed")
		if got := messageOf(op, "refused"); !strings.Contains(got, "policy.example.com") || !strings.Contains(got, "team label is missing") {
			t.Errorf("message is %q", got)
		}
		if got := statusOf(op, "let-in"); got != "Synced" {
			t.Errorf("the other object is %s", got)
		}
		strict.set(nil)
		w.ended(a.begin(configMap("let-in", "red")+configMap("refused", "red"), nil), "Succeeded")
		a.synced()
	})
	t.Run("FT-K3 SEC-C2 a webhook that quotes a Secret does not make its value known", func(t *testing.T) {
		a := w.application()
		strict.set(only("login", opinion{refuse: "password hunter2 (aHVudGVyMg==) is too short"}))
		defer strict.set(nil)
		op := w.ended(a.begin("---\napiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: NS}\nstringData: {password: hunter2}\n", nil), "Failed")
		if got := messageOf(op, "login") + op.GetMessage(); !strings.Contains(got, `admission webhook "policy.example.com" denied the request`) || strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMg") {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("FT-K3 a webhook that times out once costs a retry", func(t *testing.T) {
		a := w.application()
		var n atomic.Int32
		strict.set(func(name string) opinion { return opinion{hang: name == "slow" && n.Add(1) == 1} })
		defer strict.set(nil)
		a.deploy(configMap("slow", "red"))
		if n.Load() < 2 {
			t.Errorf("the webhook was asked %d times", n.Load())
		}
	})
	t.Run("FT-K3 an unreachable webhook is named, and does not delay other objects", func(t *testing.T) {
		a := w.application()
		strict.set(only("stuck", opinion{drop: true}))
		defer strict.set(nil)
		op := w.ended(a.begin(configMap("free", "red")+configMap("stuck", "red"), nil), "Error")
		if got := messageOf(op, "stuck"); !strings.Contains(got, "policy.example.com") || !strings.Contains(got, "webhook") {
			t.Errorf("message is %q", got)
		}
		if got := statusOf(op, "free"); got != "Synced" {
			t.Errorf("the other object is %s", got)
		}
	})
	t.Run("FT-K3 a webhook that fails open lets objects in", func(t *testing.T) {
		a := w.application()
		lenient.set(only("open", opinion{drop: true}))
		defer lenient.set(nil)
		a.deploy(configMap("open", "red"))
		a.synced()
	})
	t.Run("FT-K3 what a webhook changes is not shown as drift, nor written again and again", func(t *testing.T) {
		a := w.application()
		changing.set(only("changed", opinion{patch: `[{"op":"replace","path":"/data/color","value":"black"},{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]`}))
		defer changing.set(nil)
		var writes atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/changed") && r.URL.Query().Get("dryRun") == "" {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		a.deploy(configMap("changed", "red") + configMap("other", "red"))
		a.synced()
		if err := data("color", "black")(w.get(configMaps, "changed")); err != nil {
			t.Error(err)
		}
		w.edit(configMaps, "other", "kubectl-edit", `{"data":{"color":"blue"}}`) // healed after all that came before it
		w.live(configMaps, "other", data("color", "red"))
		a.await("Synced", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" })
		if n := writes.Load(); n != 1 {
			t.Errorf("%d writes", n)
		}
		w.edit(configMaps, "changed", "kubectl-edit", `{"data":{"extra":"1"}}`)
		a.synced()
		if n := writes.Load(); n > 2 {
			t.Errorf("%d writes after an edit of a field that is nobody's", n)
		}
	})
}
