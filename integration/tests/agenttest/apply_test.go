package agenttest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestApply(t *testing.T) {
	w := newWorld(t)
	t.Run("SYNC-26 SYNC-27 the destination's namespace is made, with metadata, and not tracked", func(t *testing.T) {
		a := w.application()
		a.policy.SyncOptions = []string{"CreateNamespace=true"}
		real := w.namespace
		w.namespace += "-new"
		defer func() { w.namespace = real }()
		id := a.begin(strings.ReplaceAll(configMap("web", "red"), ", namespace: NS", ""), func(o *linkv1.Operation) {
			o.Options.NamespaceLabels = map[string]string{"team": "shop"}
		})
		w.ended(id, "Succeeded")
		w.get(configMaps, "web")
		ns, err := shared.Dynamic().Resource(namespaces).Get(t.Context(), w.namespace, metav1Get)
		if err != nil {
			t.Fatal(err)
		}
		if ns.GetLabels()["team"] != "shop" || ns.GetAnnotations()["capstan.dev/tracking-id"] != "" {
			t.Errorf("namespace has labels %v and annotations %v", ns.GetLabels(), ns.GetAnnotations())
		}
	})
	t.Run("SRC-21 the cluster says which kinds have namespaces: one that is given to another kind is removed", func(t *testing.T) {
		a := w.application()
		name := w.namespace + "-placed"
		roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
		a.deploy("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + name + ", namespace: NS}\nrules: []\n" +
			strings.ReplaceAll(configMap("placed", "red"), ", namespace: NS", ""))
		role, err := shared.Dynamic().Resource(roles).Get(t.Context(), name, metav1Get)
		if err != nil || role.GetNamespace() != "" {
			t.Errorf("the role of the cluster: namespace %q, %v", role.GetNamespace(), err)
		}
		if got := w.get(configMaps, "placed").GetNamespace(); got != w.namespace {
			t.Errorf("an object without a namespace is in %q", got)
		}
		a.synced()
	})
	t.Run("ENG-16 PROJ-10 what the project does not permit is not applied", func(t *testing.T) {
		a := w.application()
		a.policy.Limits = &linkv1.Limits{Namespaces: []string{w.namespace}, NamespacedDeny: []*linkv1.KindRule{{Kind: "Secret"}}}
		op := w.ended(a.begin("---\napiVersion: v1\nkind: Secret\nmetadata: {name: denied, namespace: NS}\nstringData: {password: hunter2}\n", nil), "Failed")
		if got := messageOf(op, "denied"); !strings.Contains(got, "project default does not permit objects of kind Secret") {
			t.Errorf("message is %q", got)
		}
		op = w.ended(a.begin("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: denied, namespace: kube-system}\n", nil), "Failed")
		if got := messageOf(op, "denied"); !strings.Contains(got, "does not permit objects in namespace kube-system") {
			t.Errorf("message is %q", got)
		}
		op = w.ended(a.begin("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: denied}\n", nil), "Failed")
		if got := messageOf(op, "denied"); !strings.Contains(got, "does not permit cluster-scoped objects") {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("ENG-18 an object that the API server refuses gives one clear sentence, without values", func(t *testing.T) {
		a := w.application()
		op := w.ended(a.begin("---\napiVersion: v1\nkind: Secret\nmetadata: {name: bad, namespace: NS}\ntype: kubernetes.io/tls\nstringData: {tls.crt: hunter2}\n", nil), "Failed")
		if got := messageOf(op, "bad"); got == "" || strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMg") {
			t.Errorf("message is %q", got)
		}
		op = w.ended(a.begin("---\napiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: NS}\nspec: {ports: [{port: 99999}]}\n", nil), "Failed")
		if got := messageOf(op, "bad"); !strings.Contains(got, "spec.ports[0].port") {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("SYNC-20 SYNC-21 Replace with Force creates an immutable object again", func(t *testing.T) {
		a := w.application()
		job := func(image string, options string) string {
			return "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: once, namespace: NS, annotations: {capstan.dev/sync-options: '" + options + "'}}\nspec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: '" + image + "'}]}}}\n"
		}
		a.deploy(job("a", ""))
		first := w.get(jobs, "once").GetUID()
		op := w.ended(a.begin(job("b", ""), nil), "Failed")
		if got := messageOf(op, "once"); !strings.Contains(got, "Replace=true,Force=true") {
			t.Errorf("message does not say what to do: %q", got)
		}
		a.deploy(job("b", "Replace=true,Force=true"))
		if w.get(jobs, "once").GetUID() == first {
			t.Error("the object was not made anew")
		}
		a.synced()
		a.deploy(job("c", "Force=true"))
		a.synced()
	})
	t.Run("SYNC-20 Replace writes the whole object", func(t *testing.T) {
		a := w.application()
		replaced := strings.Replace(configMap("whole", "red"), "namespace: NS", "namespace: NS, annotations: {capstan.dev/sync-options: Replace=true}", 1)
		a.deploy(replaced)
		w.edit(configMaps, "whole", "someone", `{"data":{"extra":"1"}}`)
		a.deploy(strings.Replace(replaced, "red", "blue", 1))
		if extra, found, _ := unstructured.NestedString(w.get(configMaps, "whole").Object, "data", "extra"); found {
			t.Errorf("a foreign key survived a replace: %q", extra)
		}
		a.synced()
		w.edit(configMaps, "whole", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "whole", data("color", "blue"))
	})
	t.Run("DIFF-13 duplicate keys in a list are merged, the last one counts", func(t *testing.T) {
		a := w.application()
		d := func(image string) string {
			return `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: twice, namespace: NS}
spec:
  replicas: 0
  selector: {matchLabels: {app: twice}}
  template:
    metadata: {labels: {app: twice}}
    spec: {containers: [{name: web, image: "` + image + `", env: [{name: A, value: "1"}, {name: A, value: "2"}]}]}
`
		}
		op := a.deploy(d("nginx:1"))
		if got := messageOf(op, "twice"); !strings.Contains(got, "names one key twice") {
			t.Errorf("message is %q", got)
		}
		a.synced()
		a.deploy(d("nginx:2"))
		a.synced()
		w.edit(deployments, "twice", "kubectl-edit", `{"spec":{"replicas":1}}`)
		w.live(deployments, "twice", func(o *unstructured.Unstructured) error {
			if n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); n != 0 {
				return errSame
			}
			return nil
		})
	})
	t.Run("SYNC-04 a dry run changes nothing", func(t *testing.T) {
		a := w.application()
		op := w.ended(a.begin(configMap("dry", "red"), func(o *linkv1.Operation) { o.Options.DryRun = true }), "Succeeded")
		if got := messageOf(op, "dry"); got != "would be created" {
			t.Errorf("message is %q", got)
		}
		if _, err := w.at(configMaps).Get(t.Context(), "dry", metav1Get); err == nil {
			t.Error("a dry run created the object")
		}
	})
	t.Run("SYNC-03 a selective sync touches only what is named", func(t *testing.T) {
		a := w.application()
		w.ended(a.begin(configMap("chosen", "red")+configMap("other", "red"), func(o *linkv1.Operation) {
			o.Options.Resources = []string{":ConfigMap:" + w.namespace + "/chosen"}
		}), "Succeeded")
		w.get(configMaps, "chosen")
		if _, err := w.at(configMaps).Get(t.Context(), "other", metav1Get); err == nil {
			t.Error("an object that was not named was applied")
		}
	})
	t.Run("FT-L5 objects that did not come with the rows are fetched", func(t *testing.T) {
		w.change(func() { w.withhold = true })
		defer w.change(func() { w.withhold = false })
		a := w.application()
		a.deploy(configMap("fetched", "red"))
	})
	t.Run("ENG a snapshot of many objects comes as a list", func(t *testing.T) {
		a := w.application()
		var many strings.Builder
		for i := range 20 {
			many.WriteString(configMap("many-"+string(rune('a'+i)), "red"))
		}
		a.target = a.snapshot(many.String())
		a.asList()
		a.accepted = a.target
		state := a.stateRow()
		id, op := a.operation(nil)
		w.append(state, op)
		if got := len(w.ended(id, "Succeeded").GetResults()); got != 20 {
			t.Errorf("%d objects were applied", got)
		}
		a.synced()
	})
}

func TestFaults(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red"))
	answers := func(code int, times int32, body string) func(*http.Request, http.RoundTripper) (*http.Response, error) {
		var n atomic.Int32
		return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method != http.MethodPatch || n.Add(1) > times {
				return next.RoundTrip(r)
			}
			return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	status := func(code, reason string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"simulated","reason":"` + reason + `","code":` + code + `}`
	}
	for name, rule := range map[string]func(*http.Request, http.RoundTripper) (*http.Response, error){
		"429": answers(429, 2, status("429", "TooManyRequests")),
		"500": answers(500, 2, status("500", "InternalError")),
		"503": answers(503, 2, "down"),
		"504": answers(504, 1, status("504", "Timeout")),
	} {
		t.Run("FT-K1 "+name+" is tried again", func(t *testing.T) {
			w.faults.set(rule)
			defer w.faults.set(nil)
			a.deploy(configMap("web", "answer-"+name))
		})
	}
	t.Run("FT-K1 INV-2 after a lost reply the object is read, and the write is not repeated", func(t *testing.T) {
		var patches atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/configmaps/") && patches.Add(1) == 1 && err == nil {
				_ = resp.Body.Close()
				return nil, io.ErrUnexpectedEOF
			}
			return resp, err
		})
		defer w.faults.set(nil)
		a.deploy(configMap("web", "blue"))
		if n := patches.Load(); n != 1 {
			t.Errorf("%d writes were sent", n)
		}
		a.synced()
	})
	t.Run("FT-K3 an admission's refusal is reported only for that object", func(t *testing.T) {
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/refused") {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"admission webhook \"policy.example.com\" denied the request: no","reason":"Forbidden","code":403}`
				return &http.Response{StatusCode: 403, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body))}, nil
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		op := w.ended(a.begin(configMap("web", "green")+configMap("refused", "red"), nil), "Failed")
		if got := messageOf(op, "refused"); !strings.Contains(got, "policy.example.com") {
			t.Errorf("message is %q", got)
		}
		if got := statusOf(op, "web"); got != "Synced" {
			t.Errorf("the other object is %s", got)
		}
	})
}
