package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

var (
	certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	cronJobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	rollouts     = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
	definitions  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// customKind makes the cluster serve a kind with a status of its own.
func customKind(t *testing.T, group, version, kind, plural string) {
	t.Helper()
	cluster := s.Clusters["in-cluster"]
	ctx := within(t, waitLimit)
	if err := cluster.Apply(ctx, fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s, singular: %[5]s, listKind: %[3]sList}
  versions:
    - {name: %[2]s, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, group, version, kind, plural, strings.ToLower(kind))); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.WaitFor(ctx, definitions, "", plural+"."+group, func(o *unstructured.Unstructured) error {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range list {
			if m, _ := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
				return nil
			}
		}
		return errors.New("it is not served yet")
	}); err != nil {
		t.Fatal(err)
	}
}

// setStatus reports a status, as the controller of the kind would.
func setStatus(t *testing.T, r schema.GroupVersionResource, namespace, name, status string) {
	t.Helper()
	if _, err := s.Clusters["in-cluster"].Dynamic().Resource(r).Namespace(namespace).
		Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{FieldManager: "controller"}, "status"); err != nil {
		t.Fatal(err)
	}
}

// health waits for the health of an application and its cause.
func health(state, cause string) func(stack.App) error {
	return func(x stack.App) error {
		if x.Status.Health.Status != state || !strings.Contains(x.Status.Health.Message, cause) {
			return fmt.Errorf("health is %s (%s), want %s (%s)", x.Status.Health.Status, x.Status.Health.Message, state, cause)
		}
		return nil
	}
}

func healthRule(lines string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata:\n  resource.customizations.health.cert-manager.io_Certificate: " + lines + "\n"
}

func TestHealthByScript(t *testing.T) {
	customKind(t, "cert-manager.io", "v1", "Certificate", "certificates")
	repo := repository(t, "certs", map[string]string{
		"app/a.yaml": "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: web}\nspec: {secretName: web}\n",
		"app/b.yaml": configMap("b", "one"),
	})
	deploy(t, "certs", repo.URL(), "app", "")
	rule := func(manifest string) {
		t.Helper()
		if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
			t.Fatal(err)
		}
	}
	defer rule(healthRule("null"))
	condition(t, "certs", health("Progressing", "Certificate certs/web"))
	t.Run("HLTX-03 a bundled rule decides the health of a Certificate, and the cause is named", func(t *testing.T) {
		setStatus(t, certificates, "certs", "web", `{"conditions":[{"type":"Ready","status":"False","reason":"Pending","message":"no issuer"}]}`)
		condition(t, "certs", health("Degraded", "Certificate certs/web: no issuer"))
	})
	t.Run("HLT-08 a user's rule replaces it without a restart", func(t *testing.T) {
		rule(healthRule(`'return {status = "Suspended", message = "by a rule of ours"}'`))
		condition(t, "certs", health("Suspended", "by a rule of ours"))
	})
	t.Run("HLT-09 a rule that fails makes its object Unknown with the reason, and nothing else", func(t *testing.T) {
		rule(healthRule(`'return obj.none.more'`))
		condition(t, "certs", health("Unknown", "Certificate certs/web: health script: the script failed: line 1: attempt to index"))
		if x, err := s.API.Get(t.Context(), "certs"); err != nil || x.Status.Sync.Status != "Synced" {
			t.Errorf("%+v, %v", x.Status.Sync, err)
		}
	})
	t.Run("SEC-B9 a rule that loops or allocates makes its object Unknown with the limit", func(t *testing.T) {
		rule(healthRule(`'while true do end'`))
		condition(t, "certs", health("Unknown", "the script was stopped after"))
		rule(healthRule(`'local s = "x" while true do s = s .. s end'`))
		condition(t, "certs", health("Unknown", "text of more than"))
		other := repository(t, "beside", map[string]string{"app/a.yaml": configMap("a", "one")})
		deploy(t, "beside", other.URL(), "app", "")
		settled(t, "beside")
	})
	t.Run("HLT-09 guide/09 works as written", func(t *testing.T) {
		rule(guideFile(t, "09-custom-health.yaml"))
		condition(t, "certs", health("Degraded", "no issuer"))
	})
	t.Run("HLT-26 the cause follows the object's message while its health is unchanged", func(t *testing.T) {
		// The bundled rule would wait for what is being issued.
		setStatus(t, certificates, "certs", "web", `{"conditions":[{"type":"Issuing","status":"True"},{"type":"Ready","status":"False","message":"still no issuer"}]}`)
		condition(t, "certs", health("Degraded", "still no issuer"))
		setStatus(t, certificates, "certs", "web", `{"conditions":[{"type":"Ready","status":"True"}]}`)
		settled(t, "certs")
	})
	t.Run("HLT-07 without the rule the bundled one applies again", func(t *testing.T) {
		rule(healthRule("null"))
		setStatus(t, certificates, "certs", "web", `{"conditions":[{"type":"Issuing","status":"True","message":"being issued"},{"type":"Ready","status":"False"}]}`)
		condition(t, "certs", health("Progressing", "being issued"))
		setStatus(t, certificates, "certs", "web", `{"conditions":[{"type":"Ready","status":"False","message":"expired"}]}`)
		condition(t, "certs", health("Degraded", "expired"))
	})
}

func TestActionsOnLiveObjects(t *testing.T) {
	customKind(t, "argoproj.io", "v1alpha1", "Rollout", "rollouts")
	const app = "acts"
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, app, map[string]string{
		"app/rollout.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web}\nspec: {replicas: 1, strategy: {canary: {steps: [{pause: {}}]}}}\n",
		"app/cron.yaml":    "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec: {schedule: '0 3 * * *', suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: example.com/a}]}}}}}\n",
		"app/deploy.yaml":  "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: example.com/a}]}}}\n",
	})
	project := func(denied string) string {
		return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: acts}
spec:
  sourceRepos: ["*"]
  destinations: [{name: in-cluster, namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
  namespaceResourceBlacklist: [%s]
  roles:
    - name: operator
      groups: [actor]
      policies:
        - p, proj:acts:operator, applications, get, acts/*, allow
        - p, proj:acts:operator, applications, action/apps/Deployment/restart, acts/*, allow
        - p, proj:acts:operator, applications, action/argoproj.io/Rollout/*, acts/*, allow
        - p, proj:acts:operator, applications, delete/batch/CronJob/acts/*, acts/*, allow
---
`, denied)
	}
	if _, err := s.API.Apply(within(t, waitLimit), project("")+fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: acts, namespace: argocd}
spec:
  project: acts
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: acts}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, repo.URL())); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.WaitFor(within(t, waitLimit), rollouts, app, "web", func(*unstructured.Unstructured) error { return nil }); err != nil {
		t.Fatal(err)
	}
	setStatus(t, rollouts, app, "web", `{"observedGeneration":"1","pauseConditions":[{"reason":"CanaryPauseStep"}],"currentStepIndex":0}`)
	list := func(api *stack.API, kind string) (string, error) {
		return api.CLI(within(t, waitLimit), "", "app", "actions", "list", app, "--kind", kind)
	}
	run := func(api *stack.API, action, kind, name string, more ...string) (string, error) {
		return api.CLI(within(t, waitLimit), "", append([]string{"app", "actions", "run", app, action, "--kind", kind, "--resource-name", name}, more...)...)
	}
	for _, kind := range []string{"Rollout", "Deployment", "CronJob"} { // until the hub knows that they are there
		if err := poll.Until(within(t, waitLimit), func(context.Context) error { _, err := list(s.API, kind); return err }); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("ACT-01 API-10 CLI-05 the actions of an object are listed", func(t *testing.T) {
		out, err := list(s.API, "Deployment")
		for _, name := range []string{"restart", "pause", "resume", "scale"} {
			if err != nil || !strings.Contains(out, name) {
				t.Fatalf("no %s in %q, %v", name, out, err)
			}
		}
	})
	t.Run("ACT-08 API-10 CLI-05 a CronJob runs now", func(t *testing.T) {
		out, err := run(s.API, "create-job", "CronJob", "nightly")
		if err != nil || !strings.Contains(out, "created Job acts/nightly-") {
			t.Fatal(out, err)
		}
	})
	t.Run("ACT-05 what the project does not permit is not created", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), project("{group: batch, kind: Job}")); err != nil {
			t.Fatal(err)
		}
		err := poll.Until(within(t, waitLimit), func(context.Context) error {
			_, err := run(s.API, "create-job", "CronJob", "nightly")
			if err == nil || !strings.Contains(err.Error(), "does not permit objects of kind batch/Job") {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("ACT-02 guide/21 works as written", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), guideFile(t, "21-resource-actions.yaml")); err != nil {
			t.Fatal(err)
		}
		err := poll.Until(within(t, waitLimit), func(context.Context) error {
			out, err := list(s.API, "Rollout")
			if err == nil && (strings.Contains(out, "retry") || !strings.Contains(out, "promote-full")) {
				err = errors.New("the bundled actions are still there:\n" + out)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		setStatus(t, rollouts, app, "web", `{"observedGeneration":"1","pauseConditions":[{"reason":"CanaryPauseStep"}]}`)
		for action, want := range map[string]string{"resume": "<nil>", "promote-full": "true", "abort": "true"} {
			if out, err := run(s.API, action, "Rollout", "web"); err != nil || !strings.Contains(out, "changed Rollout acts/web") {
				t.Fatal(action, out, err)
			}
			path := map[string]string{"resume": "pauseConditions", "promote-full": "promoteFull", "abort": "abort"}[action]
			if _, err := cluster.WaitFor(within(t, waitLimit), rollouts, app, "web", func(o *unstructured.Unstructured) error {
				v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", path)
				if fmt.Sprint(v) != want {
					return fmt.Errorf("status.%s is %v", path, v)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("ACT-06 RBAC-07 an action needs its own right", func(t *testing.T) {
		ctx := within(t, waitLimit)
		if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", map[string]any{"name": "actor", "password": "correct horse battery"}, nil); err != nil {
			t.Fatal(err)
		}
		actor, err := s.SignIn(ctx, t.TempDir(), "actor", "correct horse battery")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run(actor, "restart", "Deployment", "web"); err != nil {
			t.Errorf("a right that is there: %v", err)
		}
		var refused *stack.CLIError
		if _, err := run(actor, "scale", "Deployment", "web", "--param", "replicas=2"); !errors.As(err, &refused) || refused.Code != 5 {
			t.Errorf("a right that is not there: %v", err)
		}
		out, err := actor.CLI(ctx, "", "app", "actions", "list", app, "--kind", "Deployment", "-o", "json")
		var shown struct {
			Items []struct {
				Actions []struct {
					Name      string `json:"name"`
					Permitted bool   `json:"permitted"`
				} `json:"actions"`
			} `json:"items"`
		}
		if err != nil || json.Unmarshal([]byte(out), &shown) != nil || len(shown.Items) != 1 {
			t.Fatal(out, err)
		}
		for _, a := range shown.Items[0].Actions {
			if a.Permitted != (a.Name == "restart") {
				t.Errorf("%s is shown as permitted: %v", a.Name, a.Permitted)
			}
		}
		log, err := s.API.CLI(ctx, "", "audit", "list", "-o", "json")
		for _, want := range []string{`"action": "action/apps/Deployment/restart"`, `"reason": "done"`, `"action": "action/apps/Deployment/scale"`, `"result": "denied"`, "failed: "} {
			if err != nil || !strings.Contains(log, want) {
				t.Errorf("ACT-06 no %s in the audit log: %v", want, err)
			}
		}
	})
	t.Run("RBAC-06 DEL-07 API-10 CLI-05 an object is deleted by who has the right to its kind, which the right to get is not", func(t *testing.T) {
		ctx := within(t, waitLimit)
		actor, err := s.SignIn(ctx, t.TempDir(), "actor", "correct horse battery")
		if err != nil {
			t.Fatal(err)
		}
		remove := func(kind, name string) error {
			_, err := actor.CLI(ctx, "", "app", "delete-resource", app, "--kind", kind, "--resource-name", name, "--yes")
			return err
		}
		before, err := cluster.WaitFor(ctx, cronJobs, app, "nightly", func(*unstructured.Unstructured) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := remove("CronJob", "nightly"); err != nil {
			t.Fatal(err)
		}
		gone := func(ctx context.Context) error {
			now, err := cluster.Dynamic().Resource(cronJobs).Namespace(app).Get(ctx, "nightly", metav1.GetOptions{})
			if err == nil && now.GetUID() == before.GetUID() {
				err = errors.New("the CronJob is still there")
			} else if apierrors.IsNotFound(err) {
				err = nil
			}
			return err
		}
		if err := poll.Until(ctx, gone); err != nil {
			t.Error(err)
		}
		var refused *stack.CLIError
		if err := remove("Deployment", "web"); !errors.As(err, &refused) || refused.Code != 5 || !strings.Contains(err.Error(), "delete/apps/Deployment/acts/web") {
			t.Errorf("a kind without a right: %v", err)
		}
	})
	t.Run("ACT-07 an agent that is away is told at once", func(t *testing.T) {
		if err := s.Agents["in-cluster"].Stop(); err != nil {
			t.Fatal(err)
		}
		_, err := run(s.API, "restart", "Deployment", "web")
		if err == nil || !strings.Contains(err.Error(), "agent") {
			t.Errorf("the answer is %v", err)
		}
		if err := s.Agents["in-cluster"].Start(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		if err := s.Connected(within(t, waitLimit), "in-cluster"); err != nil {
			t.Fatal(err)
		}
		err = poll.Until(within(t, waitLimit), func(context.Context) error { // until the hub knows of the new session
			_, err := run(s.API, "restart", "Deployment", "web")
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
