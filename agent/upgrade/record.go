// Package upgrade replaces the agent's own image on a request of the hub, and
// restores the former one if the new one does not reach the hub in time. The
// Server runs inside the agent: it refuses upgrades that the cluster's owner
// has not permitted, and starts a Job. The Updater is that Job. It runs the
// current image, under an account that may change the agent's Deployment and
// nothing else. The two do not communicate: the state of an upgrade is an
// annotation of the Deployment, written together with the image, so that either
// can continue after a crash. agent/daemon and the command `capstan-agent
// upgrade` call it.
package upgrade

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Names that the chart uses, too.
const (
	Deployment = "capstan-agent"         // the agent's
	Container  = "agent"                 // of the Deployment
	Account    = "capstan-agent-updater" // ServiceAccount of the Job
	// Annotation of the Deployment contains the Record; that of the pod
	// template and, once the hub has admitted the new version, that of the
	// Lease the id.
	Annotation = "capstan.dev/upgrade"
)

//nolint:gochecknoglobals // names, never changed
var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	leases      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// The phases of an upgrade.
const (
	Running    = "Running"
	Succeeded  = "Succeeded"
	RolledBack = "RolledBack"
	Failed     = "Failed"
)

// An Order is a requested upgrade.
type Order struct {
	ID          string
	Image       string
	Ordered     time.Time     // an older order is refused after a newer one
	BeginBefore time.Time     // it must not start later
	Deadline    time.Duration // from the replacement to the first connection
}

// Valid deadlines. A shorter one would roll every upgrade back.
const (
	leastDeadline = 5 * time.Second
	mostDeadline  = time.Hour
)

var (
	uuid      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	reference = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
)

// Validate reports the first problem.
func (o Order) Validate() error {
	switch {
	case !uuid.MatchString(o.ID):
		return fault.New(fault.Invalid, "the upgrade has the id %q, which is not a UUID", o.ID)
	case len(o.Image) > 1024 || !reference.MatchString(o.Image) || repository(o.Image) == o.Image:
		return fault.New(fault.Invalid, "image %q is not a full reference with a tag or a digest", o.Image)
	case o.Ordered.IsZero() || o.BeginBefore.IsZero():
		return fault.New(fault.Invalid, "upgrade %s does not say when it was ordered and until when it may begin", o.ID)
	case o.Deadline < leastDeadline || o.Deadline > mostDeadline:
		return fault.New(fault.Invalid, "the deadline %s of upgrade %s is not between %s and %s", o.Deadline, o.ID, leastDeadline, mostDeadline)
	}
	return nil
}

// repository is an image without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		image = image[:i]
	}
	return image
}

// A Record is the Deployment's annotation about its newest upgrade.
type Record struct {
	ID       string     `json:"id"`
	Ordered  time.Time  `json:"ordered"`
	From     string     `json:"from"`   // image that is restored
	Former   string     `json:"former"` // annotation of its pods; empty: none
	To       string     `json:"to"`
	Phase    string     `json:"phase"`
	Message  string     `json:"message,omitempty"`
	Begun    time.Time  `json:"begun"`
	Deadline time.Time  `json:"deadline"`
	Ended    *time.Time `json:"ended,omitempty"`
}

// recordOf reads a Deployment. The zero Record is none.
func recordOf(d *unstructured.Unstructured) (Record, error) {
	text, ok := d.GetAnnotations()[Annotation]
	if !ok {
		return Record{}, nil
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fault.With(fault.Wrap(fault.Invalid, err, "its annotation %s is not readable", Annotation), "Deployment "+d.GetName(), "remove the annotation")
	}
	return r, nil
}

// imageOf is the image of a Deployment.
func imageOf(d *unstructured.Unstructured) (string, error) {
	c, err := containerOf(d)
	if err != nil {
		return "", err
	}
	image, _ := c["image"].(string)
	return image, nil
}

func containerOf(d *unstructured.Unstructured) (map[string]any, error) {
	all, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["name"] == Container {
			return c, nil
		}
	}
	return nil, fault.New(fault.Invalid, "Deployment %s has no container %q", d.GetName(), Container)
}

// idOf is the upgrade that created the current pods of a Deployment.
func idOf(d *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations", Annotation)
	return id
}

// patch is a strategic merge patch that writes a record and, with an image, the
// pod template. It fails if the Deployment was changed since it was read.
func patch(d *unstructured.Unstructured, r Record, image, id string) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of upgrade %s: %w", r.ID, err)
	}
	out := map[string]any{"metadata": map[string]any{
		"resourceVersion": d.GetResourceVersion(), "annotations": map[string]any{Annotation: string(text)},
	}}
	if image != "" {
		var mark any // null removes it
		if id != "" {
			mark = id
		}
		out["spec"] = map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{Annotation: mark}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": Container, "image": image}}},
		}}
	}
	return json.Marshal(out)
}
