package doctor

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
)

const clusterTime = 10 * time.Second

// A Cluster is how the agent reaches the API server that it works on.
type Cluster struct {
	Dynamic dynamic.Interface
	// Text gets a path of the API server that is no resource.
	Text      func(ctx context.Context, path string) ([]byte, error)
	Namespace string // of the agent's Secret and Lease
}

// Check asks whether the API server is there and what the agent may do. It
// gives the cluster's fingerprint; empty: it cannot be read.
func (c Cluster) Check(ctx context.Context, r *Report) (fingerprint string) {
	ctx, cancel := context.WithTimeout(ctx, 3*clusterTime)
	defer cancel()
	if !c.ready(ctx, r) {
		r.Skip("rights", "the API server does not answer")
		return ""
	}
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ns, err := c.Dynamic.Resource(gvr).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		r.Fail("fingerprint", fault.With(fault.New(fault.Denied, "namespace %s cannot be read (%s), and its uid names the cluster", metav1.NamespaceSystem, why(err)),
			"", "let the agent's ServiceAccount get namespaces"))
	} else {
		fingerprint = string(ns.GetUID())
		r.OK("fingerprint", "%s", fingerprint)
	}
	c.rights(ctx, r)
	return fingerprint
}

func (c Cluster) ready(ctx context.Context, r *Report) bool {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	_, err := c.Text(ctx, "/readyz")
	switch {
	case err == nil:
		r.OK("Kubernetes API", "ready")
		return true
	case answered(err):
		r.Warn("Kubernetes API", "it answers, but not that it is ready: %s", why(err))
		return true
	}
	r.Fail("Kubernetes API", fault.With(fault.New(fault.Offline, "the API server does not answer: %v", err),
		"", "check the network policy of the agent's namespace; with an HTTP proxy, name the API server in NO_PROXY"))
	return false
}

// answered says whether an error is the API server's own.
func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
}

func why(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return err.Error()
}

// right is something that an agent does.
type right struct {
	group, resource, verb, namespace string
}

func (c right) String() string {
	s := c.verb + " " + c.resource
	if c.group != "" {
		s += "." + c.group
	}
	if c.namespace != "" {
		s += " in namespace " + c.namespace
	}
	return s
}

// rights asks for what the agent needs for itself, without which it does not
// run, and for what it needs to deliver, where less may be meant so.
func (c Cluster) rights(ctx context.Context, r *Report) {
	var own, all []right
	for _, verb := range []string{"get", "create", "update"} {
		own = append(own, right{"", "secrets", verb, c.Namespace}, right{"coordination.k8s.io", "leases", verb, c.Namespace})
	}
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		all = append(all, right{"*", "*", verb, ""})
	}
	lacks, err := c.lacks(ctx, own)
	switch {
	case err != nil:
		r.Fail("own rights", fault.New(fault.Offline, "the API server does not say what the agent may do: %s", why(err)))
		return
	case len(lacks) > 0:
		r.Fail("own rights", fault.With(fault.New(fault.Denied, "the agent may not %s", lacks[0]), "",
			fmt.Sprintf("give its ServiceAccount get, create and update on Secrets and Leases of namespace %s", c.Namespace)))
	default:
		r.OK("own rights", "Secret and Lease in namespace %s", c.Namespace)
	}
	lacks, err = c.lacks(ctx, all)
	switch {
	case err != nil:
		r.Fail("rights", fault.New(fault.Offline, "the API server does not say what the agent may do: %s", why(err)))
	case len(lacks) > 0:
		r.Warn("rights", "the agent may not %s for all kinds in all namespaces; what its rights do not cover is not delivered", lacks[0].verb)
	default:
		r.OK("rights", "all kinds in all namespaces")
	}
}

// lacks gives the rights that the agent does not have.
func (c Cluster) lacks(ctx context.Context, want []right) (out []right, err error) {
	gvr := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	for _, w := range want {
		attributes := map[string]any{"group": w.group, "resource": w.resource, "verb": w.verb}
		if w.namespace != "" {
			attributes["namespace"] = w.namespace
		}
		res, err := c.Dynamic.Resource(gvr).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": attributes},
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if allowed, _, _ := unstructured.NestedBool(res.Object, "status", "allowed"); !allowed {
			out = append(out, w)
		}
	}
	return out, nil
}
