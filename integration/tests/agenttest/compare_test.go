package agenttest_test

import (
	"net/http"
	"strings"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestCompare(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy = &linkv1.Policy{}
	t.Run("CMPR a manual application that was never applied is Missing and OutOfSync, and nothing is written", func(t *testing.T) {
		a.target = a.snapshot(configMap("web", "red"))
		w.append(a.stateRow())
		a.await("Missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && r.GetHealth() == "Missing" })
	})
	t.Run("DIFF-03 a new target is compared by a dry run, without any change", func(t *testing.T) {
		a.deploy(configMap("web", "red") + configMap("api", "red"))
		a.synced()
		version := w.get(configMaps, "web").GetResourceVersion()
		a.target = a.snapshot(configMap("web", "blue") + configMap("api", "red"))
		w.append(a.stateRow())
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool { return strings.Contains(r.GetDiff(), "data.color") })
		w.resource(nameOf("ConfigMap", w.namespace, "api"), func(r *linkv1.Resource) bool { return r.GetSync() == "Synced" })
		if got := w.get(configMaps, "web").GetResourceVersion(); got != version {
			t.Error("comparing wrote the object")
		}
	})
	t.Run("DIFF-03 an object that already matches is Synced before it is applied", func(t *testing.T) {
		w.apply(configMap("there", "red"))
		a.target = a.snapshot(configMap("web", "red") + configMap("api", "red") + configMap("there", "red"))
		w.append(a.stateRow())
		a.synced()
	})
	t.Run("CMPR what a manifest no longer has is OutOfSync until it is pruned", func(t *testing.T) {
		a.target = a.snapshot(configMap("web", "red"))
		w.append(a.stateRow())
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		w.resource(nameOf("ConfigMap", w.namespace, "api"), func(r *linkv1.Resource) bool { return r.GetRequiresPrune() })
	})
}

// A change that the API server refuses is a difference all the same.
func TestCompareImmutable(t *testing.T) {
	w := newWorld(t)
	immutable := func(data string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed, namespace: NS}\nimmutable: true\ndata: {" + data + "}\n"
	}
	lost := func(yaml string) string { return strings.Replace(yaml, "name: fixed", "name: lost", 1) }
	job := func(image string) string {
		return "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: once, namespace: NS}\nspec:\n  suspend: true\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: '" + image + "'}]}\n"
	}
	for name, c := range map[string]struct{ kind, object, before, after, says string }{
		"DIFF-03 an immutable ConfigMap that differs is OutOfSync":                      {"ConfigMap", "fixed", immutable("color: red, size: large"), immutable("color: blue, size: large"), "data.color"},
		"DIFF-03 one that has lost a key is too":                                        {"ConfigMap", "lost", lost(immutable("color: red, size: large")), lost(immutable("color: red")), "a field that cannot be changed"},
		"DIFF-03 a Job whose template has changed is OutOfSync, with the reason for it": {"Job", "once", job("a:1"), job("a:2"), "spec.template"},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.application()
			a.policy = &linkv1.Policy{}
			a.deploy(c.before)
			a.synced()
			a.target = a.snapshot(c.after)
			w.append(a.stateRow())
			a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
			w.resource(nameOf(c.kind, w.namespace, c.object), func(r *linkv1.Resource) bool {
				return r.GetSync() == "OutOfSync" && strings.Contains(r.GetDiff(), c.says) && strings.Contains(r.GetDiff(), "immutable")
			})
		})
	}
}

func TestIgnore(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy.Ignore = []*linkv1.IgnoreRule{{Group: "apps", Kind: "Deployment", JsonPointers: []string{"/spec/replicas"}}}
	a.policy.SyncOptions = []string{"RespectIgnoreDifferences=true"}
	deployment := func(image string) string {
		return `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "` + image + `"}]}
`
	}
	replicas := func(want int64) {
		t.Helper()
		spec := w.get(deployments, "web").Object["spec"].(map[string]any)
		if spec["replicas"] != want {
			t.Errorf("replicas is %v, want %d", spec["replicas"], want)
		}
	}
	a.deploy(deployment("nginx:1"))
	t.Run("DIFF-06 an ignored field makes no difference and is not healed", func(t *testing.T) {
		w.edit(deployments, "web", "autoscaler", `{"spec":{"replicas":10}}`)
		w.edit(deployments, "web", "kubectl-edit", `{"metadata":{"labels":{"x":"y"}}}`)
		a.synced()
		replicas(10)
	})
	t.Run("DIFF-15 SYNC-25 an ignored field that another manager owns survives an apply", func(t *testing.T) {
		a.deploy(deployment("nginx:2"))
		replicas(10)
		a.synced()
	})
	t.Run("DIFF-15 SYNC-25 an ignored field that only we own survives with its live value", func(t *testing.T) {
		b := w.application()
		b.policy = a.policy
		manifests := strings.ReplaceAll(deployment("nginx:1"), "web", "solo")
		b.deploy(manifests)
		w.edit(deployments, "solo", "autoscaler", `{"spec":{"replicas":7}}`)
		// The autoscaler goes: its entry is taken away, the value stays.
		w.edit(deployments, "solo", "autoscaler", `{"metadata":{"managedFields":[{}]}}`)
		b.deploy(strings.ReplaceAll(manifests, "nginx:1", "nginx:2"))
		b.deploy(strings.ReplaceAll(manifests, "nginx:1", "nginx:3"))
		spec := w.get(deployments, "solo").Object["spec"].(map[string]any)
		if spec["replicas"] != int64(7) {
			t.Errorf("replicas is %v, want 7", spec["replicas"])
		}
	})
	t.Run("DIFF-06 a changed rule is effective at once", func(t *testing.T) {
		a.policy = &linkv1.Policy{Automated: true}
		w.append(a.stateRow())
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
	})
	t.Run("DIFF-06 an invalid rule is reported", func(t *testing.T) {
		a.policy = &linkv1.Policy{Ignore: []*linkv1.IgnoreRule{{Group: "apps", Kind: "Deployment", Jq: []string{".spec["}}}}
		w.append(a.stateRow())
		a.await("Unknown", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), ".spec[")
		})
	})
}

func TestIdle(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("B12 an idle agent sends only lease renewals", func(t *testing.T) {
		var others []string
		renewals := make(chan struct{}, 8)
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/leases/") {
				if r.Method == http.MethodPut {
					renewals <- struct{}{}
				}
			} else {
				w.change(func() { others = append(others, r.Method+" "+r.URL.Path) })
			}
			return next.RoundTrip(r)
		})
		// What the deployment has left to be written may come until the first
		// renewals; an agent that is at rest is so between any two later ones.
		sent := func() (between []string) {
			<-renewals
			w.change(func() { between, others = others, nil })
			return between
		}
		sent()
		left := sent()
		for range 2 {
			if len(left) > 0 {
				left = sent()
			}
		}
		if len(left) > 0 {
			t.Errorf("requests between two renewals: %v", left)
		}
	})
}
