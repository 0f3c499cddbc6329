package doctor

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
)

const clusterTime = 10 * time.Second

// A Cluster contains the API server of the agent and its settings.
type Cluster struct {
	Dynamic dynamic.Interface
	// Text reads a path of the API server that is not a resource.
	Text      func(ctx context.Context, path string) ([]byte, error)
	Namespace string // of the agent's Secret and Lease
	Secret    string // its name
	Lease     string // its name
	// Observe and Namespaces are the agent's mode.
	Observe    bool
	Namespaces []string
	// Deployment is the agent's, if the hub may replace its image.
	Deployment string
}

// Check reports whether the API server is reachable and what the agent may do.
// It returns the cluster's fingerprint; empty: it cannot be read.
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

// answered reports whether an error is the API server's own.
func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
}

func why(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return err.Error()
}
