package agenttest_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestOrphans(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	orphan := func(name string) string { return nameOf("ConfigMap", w.namespace, name) }
	w.apply(configMap("stray", "red"))
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("CMPR-11 without a project that enables it, nothing is watched", func(t *testing.T) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.resources[orphan("stray")] != nil {
			t.Error("an orphan was reported")
		}
	})
	t.Run("CMPR-11 an object that no application manages is reported, those of every namespace are not", func(t *testing.T) {
		a.orphans = &linkv1.Orphans{Warn: true}
		w.append(a.stateRow())
		w.resource(orphan("stray"), func(r *linkv1.Resource) bool { return r.GetOrphan() && !r.GetManaged() })
		r := a.await("OrphanedResourceWarning", func(r *linkv1.AppReport) bool { return note(r, "OrphanedResourceWarning", "ConfigMap stray") })
		for _, usual := range []string{"kube-root-ca.crt", "ServiceAccount", "ConfigMap web"} {
			if note(r, "OrphanedResourceWarning", usual) {
				t.Errorf("%s counts as orphaned", usual)
			}
		}
		if r.GetSync() != "Synced" || r.GetHealth() != "Healthy" {
			t.Errorf("orphans count for the application: %s, %s", r.GetSync(), r.GetHealth())
		}
	})
	t.Run("CMPR-11 children of an orphan are no orphans, and a new orphan is found", func(t *testing.T) {
		stranger := w.get(configMaps, "stray")
		child := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "child", "namespace": w.namespace},
		}}
		child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "stray", UID: stranger.GetUID()}})
		if _, err := w.at(configMaps).Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.apply(configMap("late", "red"))
		w.resource(orphan("late"), func(r *linkv1.Resource) bool { return r.GetOrphan() })
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.resources[orphan("child")] != nil {
			t.Error("a child was reported")
		}
	})
	t.Run("CMPR-11 an orphan that an application adopts, or that is deleted, is no longer reported", func(t *testing.T) {
		b := w.application()
		b.deploy(configMap("late", "blue"))
		w.resource(orphan("late"), func(r *linkv1.Resource) bool { return !r.GetOrphan() && r.GetManaged() })
		if err := w.at(configMaps).Delete(t.Context(), "stray", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		a.await("no warning", func(r *linkv1.AppReport) bool { return len(r.GetNotes()) == 0 })
		w.await("it is gone", func() bool { return w.resources[orphan("stray")] == nil })
		w.resource(orphan("late"), func(r *linkv1.Resource) bool { return r.GetManaged() })
	})
	t.Run("CMPR-11 PROJ-11 rules leave orphans out, and warn can be off", func(t *testing.T) {
		a.orphans = &linkv1.Orphans{Ignore: []*linkv1.OrphanRule{{Kind: "ConfigMap", Name: "cache-*"}}}
		w.append(a.stateRow())
		a.waitForState() // what comes is judged by it
		w.apply(configMap("cache-1", "red") + configMap("seen", "red"))
		w.resource(orphan("seen"), func(r *linkv1.Resource) bool { return r.GetOrphan() })
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.resources[orphan("cache-1")] != nil {
			t.Error("an ignored object was reported")
		}
		if r := w.fakeHub.apps[a.id]; len(r.GetNotes()) > 0 {
			t.Errorf("a warning without warn: %v", r.GetNotes())
		}
	})
	t.Run("CMPR-11 what a project denies is none of its orphans, and only metadata is read", func(t *testing.T) {
		var whole []string
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
				w.change(func() { whole = append(whole, r.URL.String()) })
			}
			return next.RoundTrip(r)
		})
		a.policy.Limits = &linkv1.Limits{NamespacedDeny: []*linkv1.KindRule{{Kind: "ConfigMap"}}}
		w.append(a.stateRow())
		w.await("it is gone", func() bool { return w.resources[orphan("seen")] == nil })
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(whole) > 0 {
			t.Errorf("Secrets were read: %v", whole)
		}
	})
	t.Run("CMPR-11 without a project that enables it, all reports are withdrawn", func(t *testing.T) {
		a.policy.Limits, a.orphans = nil, &linkv1.Orphans{Warn: true}
		w.append(a.stateRow())
		w.resource(orphan("seen"), func(r *linkv1.Resource) bool { return r.GetOrphan() })
		a.orphans = nil
		w.append(a.stateRow())
		w.await("it is gone", func() bool { return w.resources[orphan("seen")] == nil })
		a.await("no warning", func(r *linkv1.AppReport) bool { return len(r.GetNotes()) == 0 })
	})
}

func TestNormalised(t *testing.T) {
	w := newWorld(t)
	t.Run("DIFF-13 an aggregated ClusterRole is Synced though the control plane writes its rules", func(t *testing.T) {
		a := w.application()
		yaml := `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: aggregated-of-capstan}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part-of-capstan: "yes"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part-of-capstan, labels: {part-of-capstan: "yes"}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`
		a.deploy(yaml)
		roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
		written := func(o *unstructured.Unstructured) error {
			if rules, _, _ := unstructured.NestedSlice(o.Object, "rules"); len(rules) == 0 {
				return errSame
			}
			return nil
		}
		if _, err := shared.WaitFor(t.Context(), roles, "", "aggregated-of-capstan", written); err != nil {
			t.Fatal(err)
		}
		a.synced()
		a.deploy(strings.Replace(yaml, "[get]", "[list]", 1))
		o, err := shared.Dynamic().Resource(roles).Get(t.Context(), "aggregated-of-capstan", metav1Get)
		if err != nil || written(o) != nil {
			t.Errorf("the rules were taken away: %v", err)
		}
		a.synced()
		id, op := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		w.append(op)
		w.ended(id, "Succeeded")
	})
	t.Run("DIFF-10 DIFF-13 quantities, durations and defaults in other forms are no difference", func(t *testing.T) {
		a := w.application()
		a.deploy(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: forms, namespace: NS, creationTimestamp: null}
spec:
  replicas: 0
  selector: {matchLabels: {app: forms}}
  template:
    metadata: {labels: {app: forms}, creationTimestamp: null}
    spec:
      containers:
      - name: web
        image: nginx
        ports: [{containerPort: 80}]
        resources: {limits: {cpu: 0.5, memory: 1024Mi}, requests: {cpu: 0.250, memory: 1Gi}}
---
apiVersion: v1
kind: Secret
metadata: {name: forms, namespace: NS}
stringData: {word: hello}
data: {other: aGVsbG8=}
---
apiVersion: v1
kind: Service
metadata: {name: forms, namespace: NS}
spec: {selector: {app: forms}, ports: [{port: 80}]}
`)
		a.synced()
		w.edit(deployments, "forms", "kubectl-edit", `{"metadata":{"labels":{"x":"y"}}}`)
		a.synced()
	})
	t.Run("DIFF-12 with IgnoreExtraneous, objects to prune do not make the application OutOfSync", func(t *testing.T) {
		a := w.application()
		extra := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: NS, annotations: {argocd.argoproj.io/compare-options: 'IgnoreExtraneous,ServerSideDiff=false'}}\ndata: {color: red}\n"
		a.deploy(configMap("web", "red") + extra)
		a.target = a.snapshot(configMap("web", "red"))
		w.append(a.stateRow())
		w.resource(nameOf("ConfigMap", w.namespace, "extra"), func(r *linkv1.Resource) bool { return r.GetRequiresPrune() })
		a.synced()
	})
	t.Run("CMPR-07 CMPR-08 CMPR-09 an update of status alone costs no request and changes no result", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("calm", "red"))
		first := a.await("Synced", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" })
		if first.GetComparedUnixNano() == 0 {
			t.Error("a comparison has no time")
		}
		var asked []string
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps/calm") {
				w.change(func() { asked = append(asked, r.Method) })
			}
			return next.RoundTrip(r)
		})
		w.edit(configMaps, "calm", "controller", `{"metadata":{"annotations":{"seen":"1"}}}`)
		w.edit(configMaps, "calm", "controller", `{"metadata":{"annotations":{"seen":"2"}}}`)
		w.apply(configMap("calm2", "red"))
		b := w.application()
		b.deploy(configMap("after", "red")) // its events come after those of the edits
		b.synced()
		a.synced()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(asked) > 0 {
			t.Errorf("requests: %v", asked)
		}
	})
}
