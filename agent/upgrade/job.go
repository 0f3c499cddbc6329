package upgrade

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// keepJob is how long a finished Job is kept, in seconds.
	keepJob = 3600
	// tries is how often the updater's pod may fail. It fails only if its node
	// does or its image cannot start: it waits for an unreachable API server.
	tries = 20
)

// jobName is the same for every start of an order.
func jobName(o Order) string { return Account + "-" + o.ID }

// Args are the arguments of the Job's container after the namespace.
func (o Order) Args() []string {
	return []string{
		"--id=" + o.ID, "--image=" + o.Image, "--ordered=" + o.Ordered.UTC().Format(time.RFC3339Nano),
		"--begin-before=" + o.BeginBefore.UTC().Format(time.RFC3339), "--deadline=" + o.Deadline.String(),
	}
}

// newJob makes the updater: a pod like the agent's, from the agent's current
// image, with another account and no volumes.
func newJob(o Order, d *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	agent, err := containerOf(d)
	if err != nil {
		return nil, err
	}
	args := []any{"upgrade", "--namespace=" + namespace}
	for _, a := range o.Args() {
		args = append(args, a)
	}
	container := map[string]any{
		"name": "updater", "image": agent["image"], "args": args,
		"resources": map[string]any{
			"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"memory": "128Mi"},
		},
	}
	for _, field := range []string{"command", "imagePullPolicy", "securityContext"} {
		if v, ok := agent[field]; ok {
			container[field] = v
		}
	}
	pod := map[string]any{
		"serviceAccountName": Account, "restartPolicy": "OnFailure", "enableServiceLinks": false, "containers": []any{container},
	}
	like, _, _ := unstructured.NestedMap(d.Object, "spec", "template", "spec")
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName", "securityContext"} {
		if v, ok := like[field]; ok {
			pod[field] = v
		}
	}
	names := map[string]any{"app.kubernetes.io/name": Account, "app.kubernetes.io/managed-by": Deployment}
	job := map[string]any{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{"name": jobName(o), "namespace": namespace, "labels": names},
		"spec": map[string]any{
			"backoffLimit": tries, "ttlSecondsAfterFinished": keepJob,
			"template": map[string]any{"metadata": map[string]any{"labels": names}, "spec": pod},
		},
	}
	// Objects share nothing with the Deployment, and numbers are as in JSON.
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the updater's Job cannot be written")
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the updater's Job cannot be read back")
	}
	return out, nil
}
