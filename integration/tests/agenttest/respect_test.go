package agenttest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// limited is the account of an agent that may read and write what the tests
// deploy, and that may list ConfigMaps or ReplicaSets only if told so.
func (w *world) limited(lists ...string) string {
	verbs := map[string]string{"configmaps": "get, create, patch, update, delete", "replicasets": "get"}
	for _, resource := range lists {
		verbs[resource] += ", list, watch"
	}
	return strings.ReplaceAll(`---
apiVersion: v1
kind: ServiceAccount
metadata: {name: limited, namespace: HOME}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited, namespace: HOME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: limited, namespace: HOME}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: HOME-limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: HOME-limited}
subjects: [{kind: ServiceAccount, name: limited, namespace: HOME}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: HOME-limited}
rules:
- {apiGroups: [""], resources: [namespaces, services, pods, endpoints, secrets], verbs: ["*"]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: ["*"]}
- {apiGroups: [apps], resources: [deployments], verbs: ["*"]}
- {apiGroups: [apps], resources: [replicasets], verbs: [`+verbs["replicasets"]+`]}
- {apiGroups: [""], resources: [configmaps], verbs: [`+verbs["configmaps"]+`]}
`, "HOME", w.home)
}

// permit changes what the agent may list, and waits until the API server knows.
func (w *world) permit(lists ...string) {
	w.t.Helper()
	w.apply(w.limited(lists...))
	client, err := dynamic.NewForConfig(w.connect)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the API server applies the rights", func() bool {
		for resource, group := range map[string]string{"configmaps": "", "replicasets": "apps"} {
			want := strings.Contains(strings.Join(lists, " "), resource)
			for _, verb := range []string{"list", "watch"} {
				reply, err := client.Resource(reviews).Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
					"spec": map[string]any{"resourceAttributes": map[string]any{"verb": verb, "group": group, "resource": resource}},
				}}, metav1.CreateOptions{})
				if err != nil {
					return false
				}
				if allowed, _, _ := unstructured.NestedBool(reply.Object, "status", "allowed"); allowed != want {
					return false
				}
			}
		}
		return true
	})
}

var reviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// reads are the lists and watches of a resource that the limited agent has sent
// since mark: allowed and refused lists, and watches.
func (w *world) reads(mark kube.AuditMark, resource string) (allowed, refused, watches int) {
	w.t.Helper()
	all, err := shared.Requests(mark)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all {
		switch {
		case r.User != "system:serviceaccount:"+w.home+":limited" || r.Resource != resource || r.Namespace != "":
		case r.Verb == "watch":
			watches++
		case r.Verb == "list" && r.Code == http.StatusForbidden:
			refused++
		case r.Verb == "list":
			allowed++
		}
	}
	return allowed, refused, watches
}

func (w *world) expectReads(mark kube.AuditMark, resource string, allowed, refused, watches int) {
	w.t.Helper()
	if watches > 0 { // it is opened after the list
		w.eventually("the watch is open", func() bool { _, _, open := w.reads(mark, resource); return open > 0 })
	}
	if a, r, o := w.reads(mark, resource); a != allowed || r != refused || o != watches {
		w.t.Errorf("%s: %d lists, %d refused lists and %d watches; want %d, %d and %d", resource, a, r, o, allowed, refused, watches)
	}
}

// unseen waits until the application is Unknown because ConfigMaps may not be listed.
func (a *application) unseen(verb string) {
	a.w.t.Helper()
	r := a.await("Unknown with the reason", func(r *linkv1.AppReport) bool {
		return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), "may not "+verb+" ConfigMap in this cluster")
	})
	if r.GetHealth() == "Healthy" {
		a.w.t.Errorf("the application is %s", r.GetHealth())
	}
}

func (a *application) refresh(t *testing.T) {
	t.Helper()
	if _, err := a.w.ops(t).Refresh(t.Context(), &linkv1.RefreshRequest{AppId: a.id}); err != nil {
		t.Fatal(err)
	}
}

func TestRespectRBAC(t *testing.T) {
	w := newWorldWith(t, func(w *world) {
		w.apply(w.limited())
		t.Cleanup(func() { _ = shared.Delete(context.Background(), w.limited()) })
		token, err := shared.AccountToken(t.Context(), w.home, "limited")
		if err != nil {
			t.Fatal(err)
		}
		w.connect = &rest.Config{Host: shared.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: shared.CA()}}
		w.permit("configmaps", "replicasets")
		w.set(&linkv1.Settings{RespectRbac: "normal"})
	})
	a, b := w.application(), w.application()
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("CLU-12 normal: a kind that may not be listed is requested once, and is Unknown with the reason", func(t *testing.T) {
		w.stop()
		w.permit()
		from := mark(t)
		w.run()
		a.unseen("list")
		w.expectReads(from, "configmaps", 0, 1, 0)
		b.deploy(service + deployed)
		b.await("objects of other kinds are compared", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" })
		w.eventually("children of Deployments are left out", func() bool { _, refused, _ := w.reads(from, "replicasets"); return refused > 0 })
		a.unseen("list")
		w.expectReads(from, "configmaps", 0, 1, 0)
		w.expectReads(from, "replicasets", 0, 1, 0)
		w.get(configMaps, "web")
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, r := range w.resources {
			if r.GetKind() == "ReplicaSet" {
				t.Errorf("a ReplicaSet is shown: %s", r.GetName())
			}
		}
	})
	t.Run("CLU-12 CMPR-11 kinds that may not be listed are left out of orphans, and not named", func(t *testing.T) {
		from := mark(t)
		lonely := func(name string) string {
			return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: NS}\nspec: {ports: [{port: 80}]}\n"
		}
		w.apply(lonely("alone"))
		b.orphans = &linkv1.Orphans{Warn: true}
		w.append(b.stateRow())
		b.await("the orphan is named", func(r *linkv1.AppReport) bool { return note(r, "OrphanedResourceWarning", "Service alone") })
		for _, resource := range []string{"configmaps", "cronjobs", "limitranges"} {
			w.eventually(resource+" are refused", func() bool { _, refused, _ := w.reads(from, resource); return refused > 0 })
		}
		w.apply(lonely("later"))
		r := b.await("a later one is named", func(r *linkv1.AppReport) bool { return note(r, "OrphanedResourceWarning", "Service later") })
		if note(r, "OrphanedResourceWarning", "may not read") {
			t.Errorf("it names kinds that are left out: %v", r.GetNotes())
		}
		w.expectReads(from, "configmaps", 0, 1, 0)
		b.orphans = nil
		w.append(b.stateRow())
		b.waitForState()
	})
	t.Run("CLU-12 what is applied while its kind is left out does not become green, and a refresh asks once more", func(t *testing.T) {
		from := mark(t)
		a.deploy(configMap("web", "blue"))
		w.live(configMaps, "web", data("color", "blue"))
		a.refresh(t)
		w.eventually("the kind is requested again", func() bool { _, refused, _ := w.reads(from, "configmaps"); return refused > 0 })
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool {
			return r.GetSync() == "Unknown" && r.GetHealth() == "Unknown"
		})
		a.unseen("list")
		w.expectReads(from, "configmaps", 0, 1, 0)
	})
	t.Run("CLU-12 normal: after the right was granted, a refresh lists the kind, once", func(t *testing.T) {
		from := mark(t)
		w.permit("configmaps", "replicasets")
		a.refresh(t)
		a.synced()
		w.await("the ReplicaSet is shown", func() bool {
			for _, r := range w.resources {
				if r.GetKind() == "ReplicaSet" {
					return true
				}
			}
			return false
		})
		w.expectReads(from, "configmaps", 1, 0, 1)
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "blue"))
	})
	t.Run("CLU-12 strict: a review is asked first, nothing is refused, and the kind comes back", func(t *testing.T) {
		w.set(&linkv1.Settings{RespectRbac: "strict"})
		a.syncAgain() // the agent has the setting
		w.stop()
		w.permit()
		var asked atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				if bytes.Contains(body, []byte(`"resource":"configmaps"`)) {
					asked.Add(1)
				}
				r = r.Clone(r.Context())
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		from := mark(t)
		w.run()
		a.unseen("list")
		b.synced()
		w.expectReads(from, "configmaps", 0, 0, 0)
		w.expectReads(from, "replicasets", 0, 0, 0)
		if n := asked.Load(); n != 1 {
			t.Errorf("%d reviews of ConfigMaps, want 1", n)
		}
		w.permit("configmaps", "replicasets")
		a.refresh(t)
		a.synced()
		if n := asked.Load(); n != 3 {
			t.Errorf("%d reviews of ConfigMaps, want 3", n)
		}
		w.expectReads(from, "configmaps", 1, 0, 1)
	})
}
