package agenttest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

var (
	cronJobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	rollouts = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
)

const workloads = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.com/web:1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: NS}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: job, image: "example.com/job:1"}]}
`

// rolloutKind is a kind with a status of its own, as Argo Rollouts brings it.
const rolloutKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Rollout, plural: rollouts, singular: rollout, listKind: RolloutList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func (a *application) actions(t *testing.T) linkv1.ActsClient {
	t.Helper()
	conn, ok := a.w.server.Conn(a.w.cluster)
	if !ok {
		t.Fatal("the agent is not attached")
	}
	return linkv1.NewActsClient(conn)
}

func (a *application) object(group, version, kind, name string) *linkv1.ActionObject {
	return &linkv1.ActionObject{AppId: a.id, Group: group, Version: version, Kind: kind, Namespace: a.w.namespace, Name: name}
}

// runAction runs an action.
func (a *application) runAction(t *testing.T, o *linkv1.ActionObject, name string, params map[string]string) (*linkv1.RunActionResponse, error) {
	t.Helper()
	return a.actions(t).RunAction(t.Context(), &linkv1.RunActionRequest{Id: string(hub.NewID[hub.OperationID]()), Object: o, Action: name, Params: params})
}

func field(want string, path ...string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		if got := fmt.Sprint(v); got != want {
			return fmt.Errorf("%s is %s, want %s", strings.Join(path, "."), got, want)
		}
		return nil
	}
}

func TestActions(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy = &linkv1.Policy{} // what an action changes of a manifest stays until the next synchronisation
	a.deploy(workloads)
	a.synced()
	web, nightly := a.object("apps", "v1", "Deployment", "web"), a.object("batch", "v1", "CronJob", "nightly")
	t.Run("ACT-03 an object lists its actions", func(t *testing.T) {
		got, err := a.actions(t).ListActions(t.Context(), &linkv1.ListActionsRequest{Object: web})
		if err != nil || len(got.GetActions()) != 4 {
			t.Fatal(got, err)
		}
	})
	t.Run("ACT-08 restart changes the template, under a manager of its own", func(t *testing.T) {
		got, err := a.runAction(t, web, "restart", nil)
		if err != nil || len(got.GetChanges()) != 1 || got.GetChanges()[0].GetCreated() {
			t.Fatal(got, err)
		}
		o := w.get(deployments, "web")
		if at, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"); at == "" {
			t.Error("it was not restarted")
		}
		managers := fmt.Sprint(o.GetManagedFields())
		if !strings.Contains(managers, "capstan-act") {
			t.Errorf("managers %s", managers)
		}
		a.synced() // a field that the manifests do not have is nobody's drift
	})
	t.Run("ACT-08 scale has a parameter", func(t *testing.T) {
		if _, err := a.runAction(t, web, "scale", map[string]string{"replicas": "2"}); err != nil {
			t.Fatal(err)
		}
		w.live(deployments, "web", field("2", "spec", "replicas"))
		_, err := a.runAction(t, web, "scale", map[string]string{"replicas": "many"})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "invalid number: many") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ACT-08 pause and resume", func(t *testing.T) {
		if _, err := a.runAction(t, web, "resume", nil); fault.KindOf(err) != fault.Conflict {
			t.Errorf("an action that is disabled: %v", err)
		}
		if _, err := a.runAction(t, web, "pause", nil); err != nil {
			t.Fatal(err)
		}
		w.live(deployments, "web", field("true", "spec", "paused"))
		if _, err := a.runAction(t, web, "resume", nil); err != nil {
			t.Fatal(err)
		}
		w.live(deployments, "web", field("<nil>", "spec", "paused"))
	})
	t.Run("ACT-08 a CronJob creates one Job per request", func(t *testing.T) {
		wish := &linkv1.RunActionRequest{Id: string(hub.NewID[hub.OperationID]()), Object: nightly, Action: "create-job"}
		got, err := a.actions(t).RunAction(t.Context(), wish)
		if err != nil || len(got.GetChanges()) != 1 || !got.GetChanges()[0].GetCreated() {
			t.Fatal(got, err)
		}
		again, err := a.actions(t).RunAction(t.Context(), wish)
		if err != nil || again.GetChanges()[0].GetName() != got.GetChanges()[0].GetName() {
			t.Errorf("the same wish again: %v, %v", again, err)
		}
		job := w.get(jobs, got.GetChanges()[0].GetName())
		if job.GetAnnotations()["capstan.dev/action"] != wish.GetId() {
			t.Errorf("annotations %v", job.GetAnnotations())
		}
	})
	t.Run("ACT-05 what the project does not permit is not created", func(t *testing.T) {
		a.policy.Limits = &linkv1.Limits{NamespacedDeny: []*linkv1.KindRule{{Group: "batch", Kind: "Job"}}}
		w.append(a.stateRow())
		defer func() { a.policy.Limits = nil; w.append(a.stateRow()) }()
		a.await("limits hold", func(r *linkv1.AppReport) bool { return r.GetGeneration() == a.generation })
		_, err := a.runAction(t, nightly, "create-job", nil)
		if fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "does not permit objects of kind batch/Job") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ACT-08 suspend and resume a CronJob", func(t *testing.T) {
		for name, want := range map[string]string{"suspend": "true"} {
			if _, err := a.runAction(t, nightly, name, nil); err != nil {
				t.Fatal(err)
			}
			w.live(cronJobs, "nightly", field(want, "spec", "suspend"))
		}
	})
	t.Run("ISO-1 an object without an owner is not changed", func(t *testing.T) {
		w.apply(configMap("other", "red"))
		_, err := a.runAction(t, a.object("", "v1", "ConfigMap", "other"), "restart", nil)
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ACT-04 a lost reply of the API server repeats no change", func(t *testing.T) {
		var patches atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/web") && patches.Add(1) == 1 {
				if err == nil {
					_ = resp.Body.Close()
				}
				return nil, &lostAnswer{}
			}
			return resp, err
		})
		defer w.faults.set(nil)
		if _, err := a.runAction(t, web, "scale", map[string]string{"replicas": "3"}); err != nil {
			t.Fatal(err)
		}
		if n := patches.Load(); n != 1 {
			t.Errorf("%d patches were sent", n)
		}
	})
	t.Run("ACT-04 a concurrent change by someone else is preserved", func(t *testing.T) {
		var once atomic.Bool
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/web") && once.CompareAndSwap(false, true) {
				w.edit(deployments, "web", "kubectl-edit", `{"metadata":{"labels":{"by":"hand"}}}`)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		if _, err := a.runAction(t, web, "scale", map[string]string{"replicas": "4"}); err != nil {
			t.Fatal(err)
		}
		o := w.get(deployments, "web")
		if o.GetLabels()["by"] != "hand" || field("4", "spec", "replicas")(o) != nil {
			t.Errorf("labels %v, %v", o.GetLabels(), field("4", "spec", "replicas")(o))
		}
	})
}

// lostAnswer is a connection that broke.
type lostAnswer struct{}

func (*lostAnswer) Error() string   { return "connection reset by peer" }
func (*lostAnswer) Timeout() bool   { return true }
func (*lostAnswer) Temporary() bool { return true }

func TestActionsOnStatus(t *testing.T) {
	w := newWorld(t)
	w.apply(rolloutKind)
	a := w.application()
	a.policy = &linkv1.Policy{}
	a.deploy("---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web, namespace: NS}\nspec: {replicas: 1, strategy: {canary: {steps: [{pause: {}}]}}}\n")
	web := a.object("argoproj.io", "v1alpha1", "Rollout", "web")
	status := func(patch string) {
		t.Helper()
		if _, err := w.at(rollouts).Patch(t.Context(), "web", "application/merge-patch+json", []byte(patch), metav1Patch, "status"); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("ACT-09 a Rollout is aborted and promoted through its status", func(t *testing.T) {
		status(`{"status":{"observedGeneration":"1","pauseConditions":[{"reason":"CanaryPauseStep"}],"currentPodHash":"a","stableRS":"b","currentStepIndex":0}}`)
		if _, err := a.runAction(t, web, "abort", nil); err != nil {
			t.Fatal(err)
		}
		w.live(rollouts, "web", field("true", "status", "abort"))
	})
	t.Run("ACT-09 a change of spec and status together is both", func(t *testing.T) {
		if _, err := a.runAction(t, web, "restart", nil); err != nil {
			t.Fatal(err)
		}
		if at, _, _ := unstructured.NestedString(w.get(rollouts, "web").Object, "spec", "restartAt"); at == "" {
			t.Error("it was not restarted")
		}
	})
	t.Run("HLT-24 a bundled rule decides the object's health", func(t *testing.T) {
		w.resource(nameOf("Rollout", w.namespace, "web"), func(r *linkv1.Resource) bool {
			return r.GetHealth() == "Progressing" && strings.Contains(r.GetMessage(), "spec update to be observed")
		})
	})
}
