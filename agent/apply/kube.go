package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Manager is the default field manager. Two appliers with one name would delete
// each other's fields, so writes that do not come from manifests append a
// suffix.
const (
	Manager          = "capstan"
	namespaceManager = "-ns"
)

const (
	maxTries   = 6
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// An endpoint is the API path of one object.
type endpoint struct {
	resource  schema.GroupVersionResource
	namespace string // empty: cluster-scoped
	name      string
}

// kube sends requests to the API server: a bounded number at a time, writes
// only while the lease is held, and retries if the server requests it.
type kube struct {
	client  dynamic.Interface
	manager string
	lease   func() error
	clock   lifecycle.Clock
	slots   chan struct{}

	accounts *accounts // clients of other users
	refused  error     // why no request is sent; nil: they are

	// lost classifies the server's reply that it does not know a resource.
	lost func(ctx context.Context, gvr schema.GroupVersionResource, cause error) error
}

func newKube(c Config) *kube {
	return &kube{client: c.Client, manager: c.Manager, lease: c.Lease, clock: c.Clock, slots: make(chan struct{}, c.Parallel), lost: c.Mapper.Lost, accounts: &accounts{open: c.As}}
}

func (k *kube) at(p endpoint) dynamic.ResourceInterface {
	r := k.client.Resource(p.resource)
	if p.namespace == "" {
		return r
	}
	return r.Namespace(p.namespace)
}

// limited runs one request in a slot, within the timeout of a write.
func (k *kube) limited(ctx context.Context, request func(ctx context.Context) error) error {
	if k.refused != nil {
		return k.refused
	}
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.slots }()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return request(ctx)
}

// get reads an object; nil if it does not exist.
func (k *kube) get(ctx context.Context, p endpoint) (*manifest.Object, error) {
	var got *manifest.Object
	err := k.retry(ctx, p.resource, nil, func(ctx context.Context) (err error) {
		got, err = k.at(p).Get(ctx, p.name, metav1.GetOptions{})
		return err
	})
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

// list reads the objects of a resource, all at once: only for small lists.
func (k *kube) list(ctx context.Context, p endpoint, opts metav1.ListOptions) ([]manifest.Object, error) {
	var items []manifest.Object
	err := k.retry(ctx, p.resource, nil, func(ctx context.Context) error {
		page, err := k.at(p).List(ctx, opts)
		if err == nil {
			items = page.Items
		}
		return err
	})
	return items, err
}

// A patch is one write of an object.
type patch struct {
	endpoint
	kind    types.PatchType
	body    []byte
	manager string
	dryRun  bool
	lenient bool   // do not validate fields (Validate=false)
	part    string // subresource; empty: the object itself
}

// patch sends a patch. If it is unknown whether the patch was executed, settled
// may check the live object; if it was, the patch is not sent again.
func (k *kube) patch(ctx context.Context, w patch, settled func(live *manifest.Object) bool) (*manifest.Object, error) {
	opts := metav1.PatchOptions{FieldManager: w.manager}
	if w.kind == types.ApplyPatchType {
		force := true
		opts.Force = &force
	}
	if w.dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	if w.lenient {
		opts.FieldValidation = metav1.FieldValidationIgnore
	}
	var got *manifest.Object
	again := func(ctx context.Context) (bool, error) {
		if settled == nil || w.dryRun {
			return false, nil
		}
		live, err := k.get(ctx, w.endpoint)
		if err != nil || live == nil || !settled(live) {
			return false, err
		}
		got = live
		return true, nil
	}
	resource := w.resource
	if w.part != "" {
		resource = schema.GroupVersionResource{} // an unknown subresource does not mean an unknown resource
	}
	err := k.retry(ctx, resource, again, func(ctx context.Context) (err error) {
		if err := k.mayWrite(w.dryRun); err != nil {
			return err
		}
		var parts []string
		if w.part != "" {
			parts = []string{w.part}
		}
		got, err = k.at(w.endpoint).Patch(ctx, w.name, w.kind, w.body, opts, parts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// create creates an object that must not exist yet.
func (k *kube) create(ctx context.Context, p endpoint, o *manifest.Object, dryRun bool) (*manifest.Object, error) {
	opts := metav1.CreateOptions{FieldManager: k.manager}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	return k.make(ctx, p, o, opts)
}

// createAs is create with another field manager.
func (k *kube) createAs(ctx context.Context, p endpoint, o *manifest.Object, manager string) (*manifest.Object, error) {
	return k.make(ctx, p, o, metav1.CreateOptions{FieldManager: manager})
}

func (k *kube) make(ctx context.Context, p endpoint, o *manifest.Object, opts metav1.CreateOptions) (*manifest.Object, error) {
	dryRun := len(opts.DryRun) > 0
	var got *manifest.Object
	err := k.retry(ctx, p.resource, nil, func(ctx context.Context) (err error) {
		if err := k.mayWrite(dryRun); err != nil {
			return err
		}
		got, err = k.at(p).Create(ctx, o, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// update replaces an object at the resource version in it.
func (k *kube) update(ctx context.Context, p endpoint, o *manifest.Object, dryRun bool) (*manifest.Object, error) {
	opts := metav1.UpdateOptions{FieldManager: k.manager}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	var got *manifest.Object
	err := k.retry(ctx, p.resource, nil, func(ctx context.Context) (err error) {
		if err := k.mayWrite(dryRun); err != nil {
			return err
		}
		got, err = k.at(p).Update(ctx, o, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// delete deletes the object with the given uid, and no other of its name. A
// missing object is success.
func (k *kube) delete(ctx context.Context, p endpoint, uid string, propagation metav1.DeletionPropagation) error {
	return k.deleteWithin(ctx, p, uid, propagation, nil)
}

// deleteWithin is delete with a grace period in seconds; nil: the object's own.
func (k *kube) deleteWithin(ctx context.Context, p endpoint, uid string, propagation metav1.DeletionPropagation, grace *int64) error {
	id := types.UID(uid)
	opts := metav1.DeleteOptions{PropagationPolicy: &propagation, Preconditions: &metav1.Preconditions{UID: &id}, GracePeriodSeconds: grace}
	err := k.retry(ctx, p.resource, nil, func(ctx context.Context) error {
		if err := k.mayWrite(false); err != nil {
			return err
		}
		return k.at(p).Delete(ctx, p.name, opts)
	})
	if isGone(err) {
		return nil
	}
	return err
}

func (k *kube) mayWrite(dryRun bool) error {
	if dryRun {
		return nil
	}
	return k.lease()
}

// retry sends a request until its reply is final. Between two attempts settled,
// if given, may find that the first one was executed. A reply that the server
// does not know the resource is verified with discovery; an empty one is not.
func (k *kube) retry(ctx context.Context, resource schema.GroupVersionResource, settled func(ctx context.Context) (bool, error), request func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		err := k.attempt(ctx, resource, request)
		if err == nil || ctx.Err() != nil || try == maxTries || !transient(err) {
			return err
		}
		if lifecycle.Sleep(ctx, k.clock, pause(try, err)) != nil {
			return err
		}
		if settled == nil || !ambiguous(err) {
			continue
		}
		done, getErr := settled(ctx)
		if getErr != nil {
			return errors.Join(err, getErr)
		}
		if done {
			return nil
		}
	}
}

// attempt sends a request once, and finds out whether its resource is gone.
func (k *kube) attempt(ctx context.Context, resource schema.GroupVersionResource, request func(ctx context.Context) error) error {
	err := k.limited(ctx, request)
	if !resource.Empty() && unknownResource(err) {
		return k.lost(ctx, resource, err)
	}
	return err
}

// pause is the delay that the server requests, else an exponential one with
// jitter.
func pause(try int, err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, 30*time.Second)
	}
	d := min(firstPause<<min(try-1, 10), mostPause)
	return d/2 + rand.N(d/2)
}

// transient reports whether the same request may succeed later.
func transient(err error) bool {
	switch {
	case repeated(err), undeclared(err):
		return false // reported as an internal error, and permanent
	case unknownResource(err):
		return fault.KindOf(err) == fault.Offline // but still listed by discovery
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		return true
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= 500
	}
	return fault.KindOf(err) == fault.Internal && lost(err)
}

// lost reports whether a request got no reply.
func lost(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ambiguous reports whether the request may have been executed nevertheless.
func ambiguous(err error) bool {
	return !apierrors.IsTooManyRequests(err) && !unknownResource(err) && transient(err)
}

// explain converts an API server's reply to one sentence about one object,
// classified by who can fix it.
func explain(err error, key manifest.Key, doing string) error {
	return explainAs(err, key, doing, key.Kind == "Secret")
}

// explainAs is explain; hidden says that the object has values that nobody may
// see, which a server may quote.
func explainAs(err error, key manifest.Key, doing string, hidden bool) error {
	if err == nil {
		return nil
	}
	if _, known := fault.As(err); known {
		return fault.With(err, key.Describe(), "")
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if lost(err) {
			return fault.With(fault.Wrap(fault.Offline, err, "the API server did not answer when asked to %s it", doing), key.Describe(), "")
		}
		return fmt.Errorf("%s %s: %w", doing, key.Describe(), err)
	}
	kind, fix := sort(err)
	text := status.Status().Message
	switch {
	case apierrors.IsUnauthorized(err):
		text = "the API server does not accept the agent's credentials"
	case hidden:
		text = withoutValues(err)
	}
	return fault.With(fault.Wrap(kind, hushed(err, hidden), "%s", text), key.Describe(), fix)
}

// hushed removes a reply about an object with hidden values from the logged
// error chain.
func hushed(err error, hidden bool) error {
	if hidden {
		return errors.New(withoutValues(err))
	}
	return err
}

// withoutValues explains why a Secret was refused, without values that the
// server quotes, and without an admission policy's text, which may contain
// them.
func withoutValues(err error) string {
	reason := apierrors.ReasonForError(err)
	for _, end := range [...]string{" denied the request", " denied request"} {
		if who, _, found := strings.Cut(err.Error(), end); found && (strings.HasPrefix(who, "admission webhook ") || strings.Contains(who, "ValidatingAdmissionPolicy ")) {
			return who + end + "; what it says of a Secret is not shown"
		}
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err.Error()
	}
	text := fmt.Sprintf("the API server refused it (%s)", reason)
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Field != "" {
				text += "; field " + c.Field
			}
		}
	}
	return text
}

// sort classifies an API server's refusal.
func sort(err error) (kind fault.Kind, fix string) {
	switch {
	case undeclared(err):
		return fault.Invalid, "correct the field's name, or set the sync option Validate=false"
	case repeated(err):
		return fault.Invalid, "name each key once"
	case terminating(err):
		return fault.Conflict, "wait until the namespace is gone"
	case dying(err):
		return fault.Missing, "wait until the definition of the kind is gone, and install it again"
	case apierrors.IsForbidden(err):
		if right, ok := lackedBy(err); ok {
			return fault.Denied, right.fix()
		}
		return fault.Denied, "give the agent's ServiceAccount the right, or fix what the admission policy objects to"
	case apierrors.IsUnauthorized(err):
		return fault.Offline, "see whether the agent's ServiceAccount is there and its token is renewed"
	case apierrors.IsNotFound(err):
		return fault.Missing, "create what is missing first, in an earlier wave, or set CreateNamespace=true for a namespace"
	case immutable(err):
		return fault.Invalid, "set the sync option Replace=true,Force=true on the object to delete and recreate it"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return fault.Invalid, "correct the manifest"
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fault.Conflict, ""
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return fault.Offline, ""
	case apierrors.IsInternalError(err):
		return fault.Offline, "see whether an admission webhook is down"
	}
	return fault.Invalid, ""
}
