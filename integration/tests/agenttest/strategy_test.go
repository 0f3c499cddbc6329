package agenttest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// What Argo CD lets people choose of comparing is decided here; these are the
// rows of that choice.
func TestStrategies(t *testing.T) {
	w := newWorld(t)
	t.Run("DIFF-01 there is no last-applied annotation, and additions of others are no difference", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("plain", "red"))
		if _, there := w.get(configMaps, "plain").GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; there {
			t.Error("it has the annotation")
		}
		w.edit(configMaps, "plain", "another", `{"data":{"theirs":"x"},"metadata":{"labels":{"theirs":"x"}}}`)
		w.edit(configMaps, "plain", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "plain", data("color", "red")) // healed, so the edit before it was judged too
		a.synced()
		a.deploy("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: NS}\ndata: {other: x}\n")
		got, _, _ := unstructured.NestedStringMap(w.get(configMaps, "plain").Object, "data")
		if _, there := got["color"]; there || got["theirs"] != "x" || got["other"] != "x" {
			t.Errorf("a field that left the manifests, one of others and one of ours: %v", got)
		}
	})
	t.Run("DIFF-01 an object that is merged instead of applied is compared with what was merged last", func(t *testing.T) {
		a := w.application()
		a.deploy(annotated(configMap("merge", "red"), "ServerSideApply=false"))
		w.edit(configMaps, "merge", "another", `{"data":{"theirs":"x"}}`)
		a.deploy(annotated("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: merge, namespace: NS}\ndata: {other: x}\n", "ServerSideApply=false"))
		got, _, _ := unstructured.NestedStringMap(w.get(configMaps, "merge").Object, "data")
		if _, there := got["color"]; there || got["theirs"] != "x" {
			t.Errorf("data is %v", got)
		}
		a.synced()
	})
	t.Run("DIFF-02 a field that the kind does not declare does not prevent the comparison", func(t *testing.T) {
		a := w.application()
		odd := "---\napiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: NS}\nspec: {selector: {app: odd}, ports: [{port: 80}], notDeclared: 1}\n"
		a.deploy(annotated(odd, "Validate=false"))
		a.synced()
	})
	t.Run("DIFF-11 a status in the manifests is no difference, for kinds of every sort", func(t *testing.T) {
		a := w.application()
		a.deploy(strings.Replace(webDeployment, "spec:\n", "status: {replicas: 7}\nspec:\n", 1))
		a.synced()
	})
}

// admission is a webhook that paints the ConfigMaps of one namespace.
func (w *world) admission() *atomic.Int32 {
	w.t.Helper()
	asked := &atomic.Int32{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var in struct {
			Request struct {
				UID    string
				Object struct{ Data map[string]string }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		answer := map[string]any{"uid": in.Request.UID, "allowed": true}
		if color := in.Request.Object.Data["color"]; color != "" && !strings.HasPrefix(color, "dark-") {
			change, _ := json.Marshal([]any{
				map[string]any{"op": "replace", "path": "/data/color", "value": "dark-" + color},
				map[string]any{"op": "add", "path": "/data/injected", "value": "yes"},
			})
			answer["patchType"], answer["patch"] = "JSONPatch", base64.StdEncoding.EncodeToString(change)
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
	}))
	w.t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kind := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": "paint-" + w.namespace},
		"webhooks": []any{map[string]any{
			"name": "paint.example.com", "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "failurePolicy": "Fail",
			"clientConfig":      map[string]any{"url": server.URL + "/paint", "caBundle": base64.StdEncoding.EncodeToString(ca)},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}},
			"rules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE", "UPDATE"},
			}},
		}},
	}}
	if _, err := shared.Dynamic().Resource(kind).Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = shared.Dynamic().Resource(kind).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
	})
	return asked
}

func TestAdmissionThatChangesObjects(t *testing.T) {
	w := newWorld(t)
	asked := w.admission()
	a := w.application()
	first := a.deployPainted(t, "red", asked)
	t.Run("DIFF-04 fields that an admission webhook changes are Synced, and are not reverted", func(t *testing.T) {
		a.synced()
		version := w.get(configMaps, "painted").GetResourceVersion()
		b := w.application()
		b.deploy("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: later, namespace: NS}\ndata: {x: one}\n") // its events come after those of the other
		b.synced()
		a.synced()
		if got := w.get(configMaps, "painted").GetResourceVersion(); got != version || first != version {
			t.Errorf("it was written again: %s, %s, %s", first, version, got)
		}
	})
	t.Run("DIFF-04 a later edit is a difference, and is healed to the webhook's version of our manifest", func(t *testing.T) {
		w.edit(configMaps, "painted", "kubectl-edit", `{"data":{"color":"dark-black"}}`)
		w.live(configMaps, "painted", data("color", "dark-red"))
		a.synced()
	})
	t.Run("DIFF-04 a new manifest is compared as the webhook would make it", func(t *testing.T) {
		c := w.application()
		c.policy = &linkv1.Policy{}
		if _, err := w.at(configMaps).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ready"}, "data": map[string]any{"color": "dark-green"},
		}}, metav1.CreateOptions{FieldManager: "another"}); err != nil {
			t.Fatal(err)
		}
		c.target = c.snapshot(configMap("ready", "green"))
		w.append(c.stateRow())
		// The injected field is the webhook's; only its own apply would add it.
		c.await("compared", func(r *linkv1.AppReport) bool { return r.GetSync() != "Unknown" && r.GetSync() != "" })
		w.resource(nameOf("ConfigMap", w.namespace, "ready"), func(r *linkv1.Resource) bool { return !strings.Contains(r.GetDiff(), "data.color") })
	})
}

// deployPainted waits until the webhook is in force, deploys, and gives the
// version of what came of it.
func (a *application) deployPainted(t *testing.T, color string, asked *atomic.Int32) string {
	t.Helper()
	maps := a.w.at(configMaps)
	for try := 0; asked.Load() == 0; try++ { // the API server takes a webhook up a moment later
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "probe-"}}}
		if _, err := maps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if try > 10_000 {
			t.Fatal("the webhook is never asked")
		}
	}
	a.deploy(configMap("painted", color))
	got := a.w.get(configMaps, "painted")
	if err := data("color", "dark-"+color)(got); err != nil {
		t.Fatal(err)
	}
	return got.GetResourceVersion()
}
