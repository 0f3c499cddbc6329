package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Respect says what happens with kinds that the agent may not list.
type Respect string

const (
	// RespectNormal leaves a kind out after its list or watch was refused.
	RespectNormal Respect = "normal"
	// RespectStrict asks for a review of the agent's rights before each list, so
	// that no request is refused. A kind is left out only after such a review.
	RespectStrict Respect = "strict"
)

// rightsWait is how long a kind is left out until it is asked for again.
const rightsWait = 10 * time.Minute

// rights are the settings about kinds that the agent may not list.
type rights struct {
	respect func() Respect    // nil: such kinds are retried
	reviews dynamic.Interface // asks for reviews

	mu    sync.Mutex
	again chan struct{} // closed when kinds that are left out are asked for again
}

// right is what is known of the right to one kind.
type right struct {
	lacking  bool // the last request was refused
	reviewed bool // the last review said that the agent has the right
	left     bool // the kind is left out
	again    <-chan struct{}
}

// leftOutError means that a kind is not asked for now, because the agent lacks
// the right.
type leftOutError struct{ error }

// LeftOut reports such an error to callers that do not know this package.
func (leftOutError) LeftOut() {}

func (e leftOutError) Unwrap() error { return e.error }

// LeaveOut makes the Informers leave kinds out that the agent may not list, as
// respect says at the time; empty: they are retried. Reviews of rights are
// requested with a client that reads whole objects. Call it before Run.
func (w *Informers) LeaveOut(respect func() Respect, reviews dynamic.Interface) {
	w.rights.respect, w.rights.reviews = respect, reviews
}

// AskAgain asks again for the kinds that are left out, with one request each.
// Otherwise that happens when discovery has changed, and after 10 minutes.
func (w *Informers) AskAgain() {
	w.rights.mu.Lock()
	defer w.rights.mu.Unlock()
	if w.rights.again != nil {
		close(w.rights.again)
		w.rights.again = nil
	}
}

func (r *rights) asked() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again == nil {
		r.again = make(chan struct{})
	}
	return r.again
}

func (r *rights) mode() Respect {
	if r.respect == nil {
		return ""
	}
	return r.respect()
}

func (w *Informers) manages(kind schema.GroupKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.managed, func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind })
}

// forbidden reports whether an error means that the kind must be left out.
func (k *reflector) forbidden(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	k.right.lacking = true
	switch k.w.rights.mode() {
	case RespectNormal:
		return true
	case RespectStrict:
		return !k.right.reviewed
	}
	return false
}

// leaveOut records that the kind is not asked for. Objects that applications
// manage become Unknown with the reason; children are not shown any more.
func (k *reflector) leaveOut(ctx context.Context, err error) {
	if !k.right.left {
		k.w.log.InfoContext(ctx, "kind left out", logkey.Kind, k.gvk.String(), logkey.Namespace, k.namespace, logkey.Error, err)
	}
	k.right.left, k.broken, k.version = true, true, ""
	if k.w.tree != nil && !k.w.manages(k.gvk.GroupKind()) {
		k.w.tree.listed(ctx, k.gvk, k.namespace, nil)
	}
	k.w.sink.Broken(ctx, k.gvk, k.namespace, leftOutError{err})
}

// awaitRight waits until the agent may have the right.
func (k *reflector) awaitRight(ctx context.Context) {
	timer, stop := k.w.clock.After(rightsWait)
	defer stop()
	select {
	case <-k.w.mapper.Changed():
	case <-k.right.again:
	case <-timer:
	case <-ctx.Done():
	}
}

// review asks with RespectStrict whether the agent may list and watch the kind,
// before a list and after a refused request. Without an answer it tries.
func (k *reflector) review(ctx context.Context, resource schema.GroupVersionResource) error {
	k.right.again = k.w.rights.asked()
	if k.w.rights.mode() != RespectStrict || k.version != "" && !k.right.lacking {
		return nil
	}
	k.right.reviewed = false
	for _, verb := range [...]string{"list", "watch"} {
		allowed, err := k.w.rights.allowed(ctx, map[string]any{
			"verb": verb, "group": resource.Group, "version": resource.Version, "resource": resource.Resource, "namespace": k.namespace,
		})
		switch {
		case apierrors.IsForbidden(err):
			return nil // then only the list itself can show it
		case err != nil:
			return fault.Wrap(fault.Offline, err, "the API server does not answer whether the agent may %s %s", verb, k.gvk.Kind)
		case !allowed:
			return k.classify(apierrors.NewForbidden(resource.GroupResource(), "", errors.New("a review of the agent's rights says so")), verb)
		}
	}
	k.right.reviewed = true
	return nil
}

// allowed asks the API server whether the agent has a right.
func (r *rights) allowed(ctx context.Context, attributes map[string]any) (bool, error) {
	reviews := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	reply, err := r.reviews.Resource(reviews).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, _ := unstructured.NestedBool(reply.Object, "status", "allowed")
	return allowed, nil
}
