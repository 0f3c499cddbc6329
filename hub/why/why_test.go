package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/why"
)

// A example is what is known of an application with one fault.
type example struct {
	name   string
	class  string
	advice string // part of it
	in     why.Input
	lines  string // of the log that are shown; empty: none
}

func pod(health hub.HealthStatus, message string) []hub.Resource {
	return []hub.Resource{
		{UID: "d", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Managed: true, Health: health},
		{UID: "r", Parent: "d", Group: "apps", Version: "v1", Kind: "ReplicaSet", Namespace: "shop", Name: "web-1", Health: health},
		{UID: "p", Parent: "r", Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1-a", Health: health, Message: message},
	}
}

func inPod(status map[string]any, events ...hub.Event) why.Input {
	ref := hub.ObjectRef{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1-a"}
	return why.Input{
		Resources: pod(hub.Degraded, ""),
		Details: map[hub.ObjectRef]why.Detail{ref: {
			Live: map[string]any{"status": status}, Events: events, Lines: map[string][]string{"app": {"panic: no coffee"}},
		}},
	}
}

type m = map[string]any

func containerStatus(state, last m) m {
	return m{"containerStatuses": []any{m{"name": "app", "state": state, "lastState": last}}}
}

func waitingFor(reason, message string) m {
	return containerStatus(m{"waiting": m{"reason": reason, "message": message}}, nil)
}

func warning(reason, message string) hub.Event {
	return hub.Event{Type: "Warning", Reason: reason, Message: message}
}

func running() m { return containerStatus(m{"running": m{}}, nil) }

func crashed(reason string, code float64) m {
	return containerStatus(m{"waiting": m{"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container=app"}},
		m{"terminated": m{"reason": reason, "exitCode": code}})
}

func unscheduled(message string) m {
	return m{"phase": "Pending", "conditions": []any{m{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}}}
}

// inObject is a fault of an object without pods.
func inObject(kind, message string, status m, events ...hub.Event) why.Input {
	ref := hub.ObjectRef{Group: "apps", Version: "v1", Kind: kind, Namespace: "shop", Name: "web"}
	return why.Input{
		Resources: []hub.Resource{{UID: "x", Group: "apps", Version: "v1", Kind: kind, Namespace: "shop", Name: "web", Managed: true, Health: hub.Degraded, Message: message}},
		Details:   map[hub.ObjectRef]why.Detail{ref: {Live: m{"status": status}, Events: events}},
	}
}

// failedSync is an operation that was refused one object.
func failedSync(message string) why.Input {
	return why.Input{Operation: &hub.Operation{Phase: hub.Failed, Results: []hub.ObjectResult{
		{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Status: "SyncFailed", Message: message},
	}}}
}

func condition(kind, message string) why.Input {
	return why.Input{Application: hub.Application{Status: hub.ApplicationStatus{Conditions: []hub.Condition{{Type: kind, Message: message}}}}}
}

// examples are the faults that people have, with the words of Kubernetes.
func examples() []example {
	return []example{
		{"an image that is not there", "image-pull", "tag exist", inPod(waitingFor("ImagePullBackOff", `Back-off pulling image "registry.example.com/app:v9": ErrImagePull: not found`)), ""},
		{"an image behind credentials", "image-credentials", "imagePullSecrets", inPod(waitingFor("ErrImagePull", "failed to authorize: failed to fetch oauth token: 401 Unauthorized: authentication required")), ""},
		{"an image with an invalid name", "image-name", "name of the image", inPod(waitingFor("InvalidImageName", "couldn't parse image name")), ""},
		{"a crash loop", "crash-loop", "last lines", inPod(crashed("Error", 1)), "panic: no coffee"},
		{"a container that runs out of memory", "out-of-memory", "resources.limits.memory", inPod(crashed("OOMKilled", 137)), "panic: no coffee"},
		{"no room on the nodes", "unschedulable-resources", "requests", inPod(unscheduled("0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available")), ""},
		{"taints", "unschedulable-placement", "tolerations", inPod(unscheduled("0/3 nodes are available: 3 node(s) had untolerated taint {gpu: true}.")), ""},
		{"a quota", "quota", "ResourceQuota", inObject("ReplicaSet", "", m{"conditions": []any{m{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": `pods "web-1-a" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=4, limited: cpu=4`}}}), ""},
		{"a limit range", "limit-range", "LimitRange", inObject("ReplicaSet", "", nil, warning("FailedCreate", `Error creating: pods "web" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi`)), ""},
		{"a readiness probe", "readiness-probe", "readinessProbe", inPod(running(), warning("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")), "panic: no coffee"},
		{"a liveness probe", "liveness-probe", "startupProbe", inPod(crashed("Error", 137), warning("Unhealthy", "Liveness probe failed: Get \"http://10.0.0.1:8080/\": context deadline exceeded")), "panic: no coffee"},
		{"a startup probe", "startup-probe", "failureThreshold", inPod(running(), warning("Unhealthy", "Startup probe failed: connection refused")), "panic: no coffee"},
		{"a claim without a volume", "volume-claim", "storage class", inPod(unscheduled("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: not helpful")), ""},
		{"a volume whose Secret is missing", "volume-mount", "missing ConfigMap or Secret", inPod(running(), warning("FailedMount", `MountVolume.SetUp failed for volume "tls" : secret "tls" not found`)), ""},
		{"a key of a ConfigMap that is missing", "missing-configuration", "optional", inPod(waitingFor("CreateContainerConfigError", `couldn't find key PORT in ConfigMap shop/web`)), ""},
		{"a command that is not there", "command-not-found", "executable", inPod(waitingFor("RunContainerError", `exec: "serve": executable file not found in $PATH`)), ""},
		{"an init container that fails", "init-container", "last lines", inPod(m{"initContainerStatuses": []any{m{"name": "app", "state": m{"waiting": m{"reason": "CrashLoopBackOff"}}, "lastState": m{"terminated": m{"reason": "Error", "exitCode": 2.0}}}}}), "panic: no coffee"},
		{"an eviction", "evicted", "requests", inPod(m{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}), ""},
		{"a node that is gone", "node-not-ready", "kubelet", inPod(running(), warning("NodeNotReady", "Node is not ready")), ""},
		{"a pod without a network", "sandbox", "network plugin", inPod(m{"phase": "Pending"}, warning("FailedCreatePodSandBox", "plugin type=\"calico\" failed")), ""},
		{"an admission webhook that refuses", "webhook-denied", "policy", failedSync(`admission webhook "policy.example.com" denied the request: no latest tag`), ""},
		{"an admission webhook that is down", "webhook-unreachable", "Deployment", failedSync(`Internal error occurred: failed calling webhook "policy.example.com": connection refused`), ""},
		{"pod security", "pod-security", "securityContext", inObject("ReplicaSet", "", nil, warning("FailedCreate", `pods "web" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`)), ""},
		{"a right that the agent lacks", "rights", "service account", failedSync(`deployments.apps is forbidden: User "system:serviceaccount:capstan:agent" cannot create resource "deployments" in API group "apps" in the namespace "shop"`), ""},
		{"a kind that is not there", "missing-kind", "CustomResourceDefinition", failedSync(`no matches for kind "Rollout" in version "argoproj.io/v1alpha1"`), ""},
		{"a namespace that is not there", "missing-namespace", "CreateNamespace=true", failedSync(`namespaces "shop" not found`), ""},
		{"a field that cannot change", "immutable-field", "Replace=true", failedSync(`Deployment.apps "web" is invalid: spec.selector: Invalid value: field is immutable`), ""},
		{"an object that is invalid", "invalid-object", "names, in Git", failedSync(`Deployment.apps "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`), ""},
		{"the policy of the cluster's owner", "owner-policy", "cluster's owner", failedSync("the local guard of the cluster permits no deletion"), ""},
		{"a Job that has failed", "job-failed", "last lines", inObject("Job", "", m{"conditions": []any{m{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}}}), ""},
		{"a Job that took too long", "job-deadline", "activeDeadlineSeconds", inObject("Job", "", m{"conditions": []any{m{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}}}), ""},
		{"a rollout that stalls", "rollout-stalled", "newest pod", inObject("Deployment", "", m{"conditions": []any{m{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": `ReplicaSet "web-1" has timed out progressing.`}}}), ""},
		{"a load balancer that is not created", "load-balancer", "annotations", inObject("Service", "", nil, warning("SyncLoadBalancerFailed", "Error syncing load balancer: no such subnet")), ""},
		{"a failed hook", "hook-failed", "sync again", why.Input{Operation: &hub.Operation{Phase: hub.Failed, Results: []hub.ObjectResult{{Group: "batch", Kind: "Job", Namespace: "shop", Name: "migrate", HookType: "PreSync", HookPhase: "Failed", Message: "it gave up"}}}}, ""},
		{"manifests that do not render", "render", "in Git", condition(hub.ComparisonError, "chart web: template: deployment.yaml:3: function \"x\" not defined"), ""},
		{"an agent that is away", "cluster-offline", "capstan-agent doctor", why.Input{Cluster: &hub.Cluster{Meta: hub.Meta{Name: "prod"}}}, ""},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	if n := len(examples()); n < 25 {
		t.Fatalf("there are %d examples", n)
	}
	for _, s := range examples() {
		t.Run("UX-APP-5 "+s.name, func(t *testing.T) {
			t.Parallel()
			s.in.Application.Name, s.in.Application.Namespace = "shop", hub.ArgoNamespace
			got := why.Explain(s.in)
			if len(got) == 0 || got[0].Class != s.class || !strings.Contains(got[0].Advice, s.advice) {
				t.Fatalf("want %s with %q, got %+v", s.class, s.advice, got)
			}
			c := got[0]
			if c.Title == "" || c.Command == "" || strings.Contains(c.Command, "$") {
				t.Errorf("%+v", c)
			}
			if strings.Join(c.Lines, "\n") != s.lines {
				t.Errorf("lines %q, want %q", c.Lines, s.lines)
			}
		})
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	t.Run("UX-APP-5 the path goes from the managed object to the pod, and its owners are no causes of their own", func(t *testing.T) {
		t.Parallel()
		in := inPod(crashed("Error", 1))
		got := why.Explain(in)
		if len(got) != 1 || len(got[0].Path) != 3 || got[0].Path[0].Kind != "Deployment" || got[0].Path[2].Kind != "Pod" || got[0].Container != "app" {
			t.Errorf("%+v", got)
		}
		if asked := why.Ask(in); len(asked) != 1 || asked[0].Kind != "Pod" {
			t.Errorf("asked about %v", asked)
		}
	})
	t.Run("UX-APP-5 what was reported is enough while the cluster cannot be asked", func(t *testing.T) {
		t.Parallel()
		in := why.Input{Resources: pod(hub.Degraded, "container app: back-off 5m0s restarting failed container=app pod=web-1-a"), Cluster: &hub.Cluster{Connected: true}}
		got := why.Explain(in)
		if len(got) != 1 || got[0].Class != "crash-loop" || got[0].Container != "app" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("UX-APP-5 several pods of one owner with the same cause are one cause", func(t *testing.T) {
		t.Parallel()
		in := why.Input{Resources: pod(hub.Degraded, "container app: CrashLoopBackOff")}
		twin := in.Resources[2]
		twin.UID, twin.Name = "p2", "web-1-b"
		in.Resources = append(in.Resources, twin)
		if got := why.Explain(in); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("UX-APP-5 an application that is well has no cause; one that waits for a person says so", func(t *testing.T) {
		t.Parallel()
		well := why.Input{Resources: pod(hub.Healthy, ""), Cluster: &hub.Cluster{Connected: true}, Application: hub.Application{Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy}}}
		if got := why.Explain(well); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		paused := well
		paused.Application.Pin = &hub.Pin{At: time.Now()}
		if got := why.Explain(paused); len(got) != 1 || got[0].Class != "paused" {
			t.Errorf("%+v", got)
		}
		waits := well
		waits.Application.Status.Sync = hub.OutOfSync
		if got := why.Explain(waits); len(got) != 1 || got[0].Class != "out-of-sync" {
			t.Errorf("%+v", got)
		}
	})
}
