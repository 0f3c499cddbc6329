package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	pageSize      = 500              // objects in one page of a list
	minWatch      = 5 * time.Minute  // a watch is renewed after 5 to 10 minutes
	unservedWait  = 10 * time.Minute // longest pause, for a kind that the cluster does not serve
	unservedRetry = 10 * time.Second // shortest pause, which grows after each failure
)

// errRelist means that the watch cannot continue from its version.
var errRelist = errors.New("the watch's version is gone")

// errVanished means that the server does not know a resource that it has
// served. Discovery is read again after a pause, because it may be outdated.
var errVanished = errors.New("the resource is not served any more")

// errEmpty means that there is no object of a kind, and that so many others are
// watched that this one is polled instead.
var errEmpty = errors.New("there is no object of the kind")

// errElsewhere means that a kind is cluster-scoped.
var errElsewhere = errors.New("the kind is cluster-scoped, and only namespaces are watched")

// reflector lists and watches one kind.
type reflector struct {
	w         *Informers
	gvk       schema.GroupVersionKind
	namespace string // empty: the whole cluster
	version   string // resource version to continue from; empty: list first
	broken    bool
	last      uint64 // highest list version so far
	torn      bool   // the last watch ended early
	empty     bool   // the last list was empty, and no object was added since
	right     right  // to list and watch
	warned    string // the server's warning about the version, such as that it is deprecated
}

// run runs until ctx ends.
func (k *reflector) run(ctx context.Context) {
	back := lifecycle.Backoff{First: 200 * time.Millisecond, Max: 30 * time.Second}
	retry := lifecycle.Backoff{First: unservedRetry, Max: unservedWait}
	for ctx.Err() == nil {
		err := k.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			back.Reset()
			retry.Reset()
			continue
		case errors.Is(err, errRelist):
			k.version = ""
			if back.Tries() == 0 {
				back.Next()
				continue
			}
		case errors.Is(err, errEmpty):
			back.Reset()
			retry.Reset()
			k.version = ""
			if lifecycle.Sleep(ctx, k.w.clock, period()) != nil {
				return
			}
			continue
		case errors.Is(err, errElsewhere):
			k.awaitChange(ctx)
			continue
		case fault.KindOf(err) == fault.Missing && !errors.Is(err, errVanished):
			k.report(ctx, err)
			k.awaitKind(ctx, retry.Next())
			continue
		case k.forbidden(err):
			k.leaveOut(ctx, err)
			k.awaitRight(ctx)
			back.Reset()
			continue
		default:
			k.report(ctx, err)
		}
		if lifecycle.Sleep(ctx, k.w.clock, back.Next()) != nil {
			return
		}
	}
}

func (k *reflector) report(ctx context.Context, err error) {
	k.w.log.WarnContext(ctx, "watch interrupted", logkey.Kind, k.gvk.String(), logkey.Namespace, k.namespace, logkey.Error, err)
	k.broken = true
	k.w.sink.Broken(ctx, k.gvk, k.namespace, err)
}

// awaitKind waits until discovery has changed, or is due to be read again.
func (k *reflector) awaitKind(ctx context.Context, most time.Duration) {
	changed := k.w.mapper.Changed()
	if _, ok := k.w.mapper.Known(k.gvk); ok {
		return
	}
	timer, stop := k.w.clock.After(most)
	defer stop()
	select {
	case <-changed:
	case <-timer:
	case <-ctx.Done():
	}
}

// awaitChange waits until the server serves something else.
func (k *reflector) awaitChange(ctx context.Context) {
	select {
	case <-k.w.mapper.Changed():
	case <-ctx.Done():
	}
}

// listAndWatch lists if needed and then watches until the watch ends.
func (k *reflector) listAndWatch(ctx context.Context) error {
	mapping, err := k.w.mapper.Mapping(ctx, k.gvk)
	if err != nil {
		return err
	}
	client := dynamic.ResourceInterface(k.w.client.Resource(mapping.Resource))
	switch {
	case k.namespace != "" && !mapping.Namespaced:
		return errElsewhere
	case k.namespace != "":
		client = k.w.client.Resource(mapping.Resource).Namespace(k.namespace)
	}
	warnings := &heard{}
	ctx = context.WithValue(ctx, heardKey{}, warnings)
	timeout := period()
	stream, begun, err := k.open(ctx, client, mapping.Resource, timeout)
	if err != nil {
		return err
	}
	defer k.w.leave()
	defer stream.Stop()
	k.warn(ctx, warnings)
	k.mend(ctx)
	return k.follow(ctx, stream, begun, timeout)
}

// period is the duration of a watch, in whole seconds.
func period() time.Duration {
	return time.Duration(float64(minWatch) * (1 + rand.Float64())).Truncate(time.Second)
}

// open lists if needed and opens a watch, in this kind's slot. After a watch
// the caller calls leave. begun is a moment before the server starts the
// watch's timeout: a watch that ends in time never counts as interrupted.
func (k *reflector) open(ctx context.Context, client dynamic.ResourceInterface, resource schema.GroupVersionResource, timeout time.Duration) (stream apiwatch.Interface, begun time.Time, err error) {
	done, err := k.w.acquireSlot(ctx)
	if err != nil {
		return nil, begun, err
	}
	defer done()
	if err := k.review(ctx, resource); err != nil {
		return nil, begun, err
	}
	if k.torn && k.version != "" {
		if err := k.compareTime(ctx, client); err != nil {
			return nil, begun, k.classify(err, "list")
		}
	}
	k.torn = true // until the watch has ended at its timeout
	if k.version == "" {
		if err := k.list(ctx, client); err != nil {
			return nil, begun, k.classify(err, "list")
		}
	}
	if !k.w.enter(k.empty) {
		return nil, begun, errEmpty
	}
	seconds := int64(timeout.Seconds())
	begun = k.w.clock.Now()
	stream, err = client.Watch(ctx, metav1.ListOptions{
		ResourceVersion: k.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		k.w.leave()
		return nil, begun, k.classify(err, "watch")
	}
	return stream, begun, nil
}

// compareTime checks, after an interrupted watch, whether the server is behind
// what was seen of it: its etcd was restored from a backup. It would then
// accept a watch from a later version and be silent until it had caught up.
func (k *reflector) compareTime(ctx context.Context, client dynamic.ResourceInterface) error {
	page, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if now := number(page.GetResourceVersion()); now != 0 && now < number(k.version) {
		k.last = max(k.last, number(k.version)) // the following list is older
		k.version = ""
	}
	return nil
}

// list passes every object to OnUpdate, page by page.
func (k *reflector) list(ctx context.Context, client dynamic.ResourceInterface) error {
	opts := metav1.ListOptions{Limit: pageSize}
	held := map[string]struct{}{}
	version, back := "", false
	for {
		page, err := client.List(ctx, opts)
		if err != nil {
			return err
		}
		version = page.GetResourceVersion()
		if opts.Continue == "" {
			n := number(version)
			back = n < k.last
			k.last = n
		}
		for i := range page.Items {
			o := &page.Items[i]
			o.SetGroupVersionKind(k.gvk)
			held[string(o.GetUID())] = struct{}{}
			held[o.GetNamespace()+"/"+o.GetName()] = struct{}{}
			k.deliver(ctx, o)
			page.Items[i] = manifest.Object{}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			break
		}
	}
	if k.w.tree != nil {
		k.w.tree.listed(ctx, k.gvk, k.namespace, held)
	}
	k.w.sink.OnReplace(ctx, k.gvk, k.namespace, version, back, held)
	k.version, k.empty = version, len(held) == 0
	k.mend(ctx)
	return nil
}

func (k *reflector) mend(ctx context.Context) {
	k.right.lacking, k.right.left = false, false
	if k.broken {
		k.broken = false
		k.w.sink.Broken(ctx, k.gvk, k.namespace, nil)
	}
}

func (k *reflector) deliver(ctx context.Context, o *manifest.Object) {
	k.empty = false
	if k.w.tree != nil {
		k.w.tree.onUpdate(ctx, o)
	}
	k.w.sink.OnUpdate(ctx, o)
}

// follow passes on events until the server ends the watch, which it does at its
// timeout; that is no error.
func (k *reflector) follow(ctx context.Context, stream apiwatch.Interface, begun time.Time, timeout time.Duration) error {
	any := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-stream.ResultChan():
			if !open {
				if !any && k.w.clock.Now().Sub(begun) < time.Second {
					return fault.Wrap(fault.Offline, io.ErrUnexpectedEOF, "the API server ends the watch of %s at once", k.gvk.Kind)
				}
				k.torn = k.w.clock.Now().Sub(begun) < timeout
				return nil
			}
			any = true
			if err := k.event(ctx, e); err != nil {
				return err
			}
		}
	}
}

func (k *reflector) event(ctx context.Context, e apiwatch.Event) error {
	if e.Type == apiwatch.Error {
		return k.classify(apierrors.FromObject(e.Object), "watch")
	}
	o, ok := e.Object.(*manifest.Object)
	if !ok {
		return fmt.Errorf("watch %s: event of type %T", k.gvk, e.Object)
	}
	k.version = o.GetResourceVersion()
	o.SetGroupVersionKind(k.gvk) // for metadata requests the server does not send it
	switch e.Type {
	case apiwatch.Added, apiwatch.Modified:
		k.deliver(ctx, o)
	case apiwatch.Deleted:
		if k.w.tree != nil {
			k.w.tree.onDelete(ctx, string(o.GetUID()))
		}
		k.w.sink.OnDelete(ctx, o)
	case apiwatch.Bookmark, apiwatch.Error:
	}
	return nil
}

// classify maps an API server's reply to the loop's next step.
func (k *reflector) classify(err error, doing string) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return fmt.Errorf("%s %s: %w", doing, k.gvk.Kind, errRelist)
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		k.version = ""
		k.w.mapper.Forget(k.gvk)
		return k.w.mapper.unserved(k.gvk, errors.Join(errVanished, err))
	case apierrors.IsForbidden(err):
		where := "this cluster"
		if k.namespace != "" {
			where = "namespace " + k.namespace
		}
		return fault.Wrap(fault.Denied, err, "the agent may not %s %s in %s", doing, k.gvk.Kind, where)
	case apierrors.IsUnauthorized(err):
		return fault.Wrap(fault.Denied, err, "the API server does not accept the agent's credentials")
	case errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && status.Status().Code >= http.StatusBadRequest:
		k.version = ""
	}
	return fault.Wrap(fault.Offline, err, "the API server does not answer the %s of %s", doing, k.gvk.Kind)
}

// number reads a resource version, which is an increasing number in all known
// API servers; 0 for anything else.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
