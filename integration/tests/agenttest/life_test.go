package agenttest_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

const webDeployment = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx:1}]}
`

func TestTree(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(webDeployment + configMap("web", "red"))
	t.Run("HLT-02 children are reported with their owners, and do not count for health themselves", func(t *testing.T) {
		uid := string(w.get(deployments, "web").GetUID())
		var set, pod *linkv1.Resource
		w.await("replica set and pod are told", func() bool {
			set, pod = nil, nil
			for _, r := range w.resources {
				switch r.GetKind() {
				case "ReplicaSet":
					set = r
				case "Pod":
					pod = r
				}
			}
			return set != nil && pod != nil
		})
		if set.GetParent() != uid || pod.GetParent() != set.GetUid() || pod.GetManaged() || pod.GetAppId() != a.id {
			t.Errorf("replica set %v, pod %v", set, pod)
		}
		a.await("the worst object is the cause", func(r *linkv1.AppReport) bool {
			return r.GetHealth() == "Progressing" && strings.HasPrefix(r.GetHealthCause(), "Deployment "+w.namespace+"/web") && r.GetSync() == "Synced"
		})
	})
	t.Run("CMPR-02 children are deleted with their owner", func(t *testing.T) {
		a.deploy(configMap("web", "red"))
		w.waitDeleted(deployments, "web")
		w.await("nothing but the rest is told", func() bool { return len(w.resources) == 1 })
		a.await("Healthy", func(r *linkv1.AppReport) bool { return r.GetHealth() == "Healthy" && r.GetSync() == "Synced" })
	})
	t.Run("a restart begins with a complete report that removes deleted objects", func(t *testing.T) {
		w.stop()
		w.change(func() { w.snapshots = 0 })
		w.run()
		w.await("a snapshot ended", func() bool { return w.snapshots > 0 })
	})
}

func TestRewound(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("old", "red"))
	a.synced()
	w.halt()
	w.change(func() { // another database answers under the hub's name
		w.incarnation = "two"
		w.rows = nil
	})
	a.deploySoon(configMap("web", "blue"))
	w.start()
	t.Run("INV-3 FT-D a hub of another incarnation changes and prunes nothing", func(t *testing.T) {
		w.await("the agent says so", func() bool {
			return strings.Contains(strings.Join(w.fakeHub.apps[a.id].GetWarnings(), "\n"), "incarnation")
		})
		if err := data("color", "red")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
		w.get(configMaps, "old")
	})
	t.Run("INV-12 what was accepted before is still enforced", func(t *testing.T) {
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "red"))
	})
	t.Run("FT-A3 after the loss of its directory an agent still identifies its hub", func(t *testing.T) {
		w.stop()
		w.state += "-new"
		w.change(func() {
			w.resources = map[string]*linkv1.Resource{}
			delete(w.fakeHub.apps, a.id)
		})
		w.run()
		w.await("the rows were offered and not taken", func() bool { return w.offers >= 2 })
		if err := data("color", "red")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
	})
}

// deploySoon writes the rows of an operation that may never be taken.
func (a *application) deploySoon(yaml string) { a.begin(yaml, nil) }

func TestOps(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy.SelfHeal = false
	secret := func(value string) string {
		return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: NS}\nstringData: {password: " + value + "}\n"
	}
	a.deploy(configMap("web", "red") + secret("hunter2"))
	a.synced()
	conn, ok := w.server.Conn(w.cluster)
	if !ok {
		t.Fatal("no connection to the agent")
	}
	ops := linkv1.NewOpsClient(conn)
	t.Run("SEC a Secret is returned with its values masked, and equal values have equal masks", func(t *testing.T) {
		get := func() string {
			r, err := ops.Get(t.Context(), &linkv1.GetRequest{AppId: a.id, Version: "v1", Kind: "Secret", Namespace: w.namespace, Name: "login"})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(r.GetJson()), "hunter") || strings.Contains(string(r.GetJson()), "aHVudGVyM") || strings.Contains(string(r.GetJson()), "managedFields") {
				t.Errorf("the answer is not clean: %s", r.GetJson())
			}
			var o map[string]any
			if err := json.Unmarshal(r.GetJson(), &o); err != nil {
				t.Fatal(err)
			}
			v, _, _ := unstructured.NestedString(o, "data", "password")
			return v
		}
		before := get()
		w.edit(secrets, "login", "kubectl-edit", `{"stringData":{"password":"hunter3"}}`)
		if after := get(); after == before || !strings.HasPrefix(after, "hmac:") {
			t.Errorf("masked values: %q, then %q", before, after)
		}
	})
	t.Run("DIFF-16 a difference has desired, live and applied, and names the fields", func(t *testing.T) {
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool { return r.GetSync() == "OutOfSync" })
		w.resource(nameOf("Secret", w.namespace, "login"), func(r *linkv1.Resource) bool { return r.GetSync() == "OutOfSync" })
		r, err := ops.Diff(t.Context(), &linkv1.DiffRequest{AppId: a.id})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetObjects()) != 2 {
			t.Fatalf("%d objects differ", len(r.GetObjects()))
		}
		d := r.GetObjects()[0]
		if d.GetName() != "web" || d.GetFields()[0] != "data.color" || !bytes.Contains(d.GetDesired(), []byte(`"red"`)) || !bytes.Contains(d.GetLive(), []byte(`"black"`)) || !bytes.Contains(d.GetApplied(), []byte(`"red"`)) {
			t.Errorf("difference is %v", d)
		}
		if s := r.GetObjects()[1]; bytes.Contains(s.GetDesired(), []byte("aHVudGVyM")) || bytes.Contains(s.GetLive(), []byte("aHVudGVyM")) {
			t.Error("a Secret's value is in the difference")
		}
	})
	t.Run("CMPR-01 CLU-10 a refresh sends no request for what is watched", func(t *testing.T) {
		var sent atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, w.namespace+"/") {
				sent.Add(1)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		if _, err := ops.Refresh(t.Context(), &linkv1.RefreshRequest{AppId: a.id}); err != nil {
			t.Fatal(err)
		}
		if n := sent.Load(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("ISO-1 objects of other applications are not returned", func(t *testing.T) {
		w.apply(configMap("foreign", "red"))
		for name, r := range map[string]*linkv1.GetRequest{
			"foreign object": {AppId: a.id, Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "foreign"},
			"other app":      {AppId: "someone", Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "web"},
			"agent's Secret": {AppId: a.id, Version: "v1", Kind: "Secret", Namespace: w.home, Name: "capstan-agent-state"},
		} {
			if _, err := ops.Get(t.Context(), r); fault.KindOf(err) != fault.Missing {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if _, err := ops.Get(t.Context(), &linkv1.GetRequest{AppId: a.id}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("an empty request: error %v", err)
		}
		if _, err := ops.Diff(t.Context(), &linkv1.DiffRequest{AppId: "someone"}); fault.KindOf(err) != fault.Missing {
			t.Errorf("a difference of nobody: error %v", err)
		}
	})
}

func TestQueue(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("INV-4 one operation at a time: of those that wait the newest supersedes the others", func(t *testing.T) {
		first := a.begin(hookJob("hold", "PreSync", "BeforeHookCreation")+configMap("web", "red"), nil)
		w.live(jobs, "hold", exists)
		second, rowTwo := a.operation(nil)
		third, rowThree := a.operation(nil)
		fourth, rowFour := a.operation(nil)
		w.append(rowTwo, rowThree, rowFour)
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: fourth, Actor: "alice"}))
		if got := w.ended(fourth, "Failed").GetMessage(); !strings.Contains(got, "terminated by alice") {
			t.Errorf("message is %q", got)
		}
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: first, Actor: "alice"}))
		w.ended(first, "Failed")
		if got := w.ended(second, "Failed").GetMessage(); !strings.Contains(got, "superseded by operation "+third) {
			t.Errorf("message is %q", got)
		}
		w.live(jobs, "hold", func(o *unstructured.Unstructured) error {
			if o.GetAnnotations()["capstan.dev/hook-instance"] != third+"/PreSync" {
				return errSame
			}
			return nil
		})
		w.finish("hold", "Complete")
		w.ended(third, "Succeeded")
	})
}

func TestWatchFaults(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("gone", "red"))
	a.synced()
	t.Run("FT-K5 CLU-10 after 410 Gone the kind is listed again, and what was missed is healed", func(t *testing.T) {
		// Watches of ConfigMaps end and cannot be begun again until both
		// objects were changed behind the agent's back.
		var expired atomic.Int32
		hold := make(chan struct{})
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/configmaps") {
				return next.RoundTrip(r)
			}
			if r.URL.Query().Get("watch") == "" {
				<-hold
				return next.RoundTrip(r)
			}
			if expired.Add(1) > 3 {
				return next.RoundTrip(r)
			}
			body := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}` + "\n"
			return &http.Response{StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		})
		defer w.faults.set(nil)
		w.stop()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		if err := w.at(configMaps).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.run()
		close(hold)
		w.live(configMaps, "web", data("color", "red"))
		w.live(configMaps, "gone", data("color", "red"))
		w.await("the watch came back", func() bool { return true })
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "red"))
	})
	t.Run("FT-K9 CLU-12 a kind that may not be watched is Unknown, and nothing is pruned", func(t *testing.T) {
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"configmaps is forbidden","code":403}`
				return &http.Response{StatusCode: 403, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			return next.RoundTrip(r)
		})
		w.stop()
		w.run()
		a.await("Unknown with a reason", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), "may not list ConfigMap")
		})
		w.get(configMaps, "web")
		w.faults.set(nil)
		a.synced()
	})
	t.Run("CMPR-12 FT-K4 objects of a kind whose definition is deleted are Missing, and no record is lost", func(t *testing.T) {
		b := w.application()
		b.policy.SelfHeal = false
		group := strings.ReplaceAll(w.namespace, "-", "") + ".example.com"
		definition := `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.` + group + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`
		w.apply(definition)
		gadget := "---\napiVersion: " + group + "/v1\nkind: Gadget\nmetadata: {name: one, namespace: NS}\nspec: {size: 1}\n"
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		if _, err := shared.WaitFor(ctx, crds, "", "gadgets."+group, func(o *unstructured.Unstructured) error {
			if !strings.Contains(fmt.Sprint(o.Object["status"]), "type:Established") {
				return errSame
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.deploy(gadget)
		b.synced()
		if err := shared.Delete(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		b.await("Missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && r.GetHealth() == "Missing" })
	})
}

func TestTwoAgents(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	op := a.deploy(configMap("web", "red"))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if _, err := shared.WaitFor(ctx, secrets, w.home, "capstan-agent-state", func(o *unstructured.Unstructured) error {
		text, _, _ := unstructured.NestedString(o.Object, "data", "applications")
		raw, _ := base64.StdEncoding.DecodeString(text)
		if !bytes.Contains(raw, []byte(op.GetOperationId())) {
			return errSame
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Run("FT-A2 FT-L8 a second agent with another directory writes nothing while the first holds the lease", func(t *testing.T) {
		first := w.stop
		state := w.state
		w.state += "-second"
		var writes atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == "" {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
		w.run()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "red"))
		if n := writes.Load(); n != 1 {
			t.Errorf("%d writes healed one edit", n)
		}
		w.faults.set(nil)
		// An orderly end gives the lease back, and the second one takes over.
		first()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "red"))
		_ = state
	})
}
