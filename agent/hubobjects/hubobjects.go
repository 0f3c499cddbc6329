// Package hubobjects is the client of objects that live in the hub:
// applications and projects that an application of this cluster renders. It
// reads and follows them, and asks the hub to write or delete one. It sends no
// manifests, stores nothing on disk, and makes no decisions. The daemon runs
// one and passes it to the engine. While the hub is unreachable, the known
// state stays, and every call returns that error.
package hubobjects

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// callTime bounds one call to the hub.
const callTime = 30 * time.Second

// shownPause is how long the stream may take to show an object that was written
// by this agent. The hub polls ten times a second: an object that was created
// and deleted in between never appears in the stream.
const shownPause = 2 * time.Second

// served is the one version of the hub's kinds.
const served = "v1alpha1"

// A Ref names an object of the hub and the application that renders it.
type Ref struct {
	App     string
	Key     manifest.Key
	Version string // of its kind; only for SetFollowed
}

func (r Ref) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Key.Group, Version: r.Version, Kind: r.Key.Kind}
}

func (r Ref) link() *linkv1.HubRef {
	return &linkv1.HubRef{AppId: r.App, Kind: r.Key.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name}
}

// A Deletion is the result of the deletion of an object: it is gone, belongs to
// another application, or has to wait.
type Deletion struct {
	Gone, Other bool
	Waits       string
}

// A Sink receives the state of the followed objects, like a watch.
type Sink interface {
	OnUpdate(ctx context.Context, o *manifest.Object)
	OnDelete(ctx context.Context, o *manifest.Object)
	OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{})
	Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error)
}

// Objects are those of the hub.
type Objects struct {
	conn  func(ctx context.Context) (grpc.ClientConnInterface, error)
	clock lifecycle.Clock
	log   *slog.Logger
	wake  chan struct{}
	wrote chan struct{}

	mu      sync.Mutex
	refs    []Ref
	written map[manifest.Key]time.Time // and not checked yet
}

// New makes a client. conn returns a connection to the hub, or fault.Offline.
func New(conn func(ctx context.Context) (grpc.ClientConnInterface, error), clock lifecycle.Clock, log *slog.Logger) *Objects {
	return &Objects{conn: conn, clock: clock, log: log, wake: make(chan struct{}, 1), wrote: make(chan struct{}, 1), written: map[manifest.Key]time.Time{}}
}

// SetFollowed replaces the objects that are followed. It does not block.
func (o *Objects) SetFollowed(refs []Ref) {
	o.mu.Lock()
	same := slices.Equal(o.refs, refs)
	o.refs = refs
	o.mu.Unlock()
	if same {
		return
	}
	notify(o.wake)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followWritten records that an object was written, so that the loop waits for
// its state.
func (o *Objects) followWritten(key manifest.Key) {
	o.mu.Lock()
	o.written[key] = o.clock.Now()
	o.mu.Unlock()
	notify(o.wrote)
}

// takeWritten returns the objects whose last write is so old that the stream
// must have shown it, and the number of others.
func (o *Objects) takeWritten() (keys []manifest.Key, others int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, at := range o.written {
		if o.clock.Now().Sub(at) >= shownPause/2 {
			keys = append(keys, key)
			delete(o.written, key)
		}
	}
	return keys, len(o.written)
}

func (o *Objects) wanted() []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refs
}

// call makes one call to the hub.
func call[T any](ctx context.Context, o *Objects, do func(ctx context.Context, c linkv1.HubObjectsClient) (T, error)) (T, error) {
	own, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var none T
	conn, err := o.conn(own)
	if err == nil {
		if none, err = do(own, linkv1.NewHubObjectsClient(conn)); err == nil {
			return none, nil
		}
	}
	if own.Err() != nil && ctx.Err() == nil {
		err = fault.Wrap(fault.Offline, err, "the hub did not answer within %s", callTime)
	}
	return none, err
}

// Read returns an object; nil if there is none.
func (o *Objects) Read(ctx context.Context, r Ref) (*manifest.Object, error) {
	got, err := call(ctx, o, func(ctx context.Context, c linkv1.HubObjectsClient) (*linkv1.HubObject, error) {
		return c.Read(ctx, r.link())
	})
	if err != nil || len(got.GetObject()) == 0 {
		return nil, err
	}
	return manifest.FromCanonical(got.GetObject())
}

// Apply asks the hub to write the manifest of a digest to an object.
func (o *Objects) Apply(ctx context.Context, r Ref, digest [32]byte, dryRun bool) (*manifest.Object, error) {
	got, err := call(ctx, o, func(ctx context.Context, c linkv1.HubObjectsClient) (*linkv1.HubObject, error) {
		return c.Apply(ctx, &linkv1.HubApply{Ref: r.link(), Digest: digest[:], DryRun: dryRun})
	})
	if err != nil {
		return nil, err
	}
	if !dryRun {
		o.followWritten(r.Key)
	}
	return manifest.FromCanonical(got.GetObject())
}

// Delete asks the hub to delete the object with the given uid.
func (o *Objects) Delete(ctx context.Context, r Ref, uid string) (Deletion, error) {
	got, err := call(ctx, o, func(ctx context.Context, c linkv1.HubObjectsClient) (*linkv1.HubDeleted, error) {
		return c.Delete(ctx, &linkv1.HubDelete{Ref: r.link(), Uid: uid})
	})
	return Deletion{Gone: got.GetGone(), Other: got.GetOther(), Waits: got.GetWaits()}, err
}

// Run follows what is wanted until ctx ends, then returns nil. An agent whose
// applications render no object of the hub sends nothing.
func (o *Objects) Run(ctx context.Context, sink Sink) error {
	f := &follow{o: o, sink: sink, last: map[manifest.Key]*manifest.Object{}}
	back := lifecycle.Backoff{First: 250 * time.Millisecond, Max: 30 * time.Second}
	for ctx.Err() == nil {
		if len(o.wanted()) == 0 {
			f.last = map[manifest.Key]*manifest.Object{}
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
			continue
		}
		began := o.clock.Now()
		err := f.followStream(ctx)
		if ctx.Err() != nil || err == nil { // err is nil when nothing is wanted any more
			continue
		}
		if o.clock.Now().Sub(began) > time.Minute {
			back.Reset()
		}
		_ = lifecycle.Sleep(ctx, o.clock, f.interrupted(ctx, err, &back))
	}
	return nil
}

// follow is the reported state of the objects.
type follow struct {
	o      *Objects
	sink   Sink
	serial uint64
	asked  []Ref
	last   map[manifest.Key]*manifest.Object
}

var errUnwanted = errors.New("nothing is wanted any more")

// followStream follows over one stream, until it breaks or nothing is wanted.
func (f *follow) followStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := f.o.conn(ctx)
	if err != nil {
		return err
	}
	stream, err := linkv1.NewHubObjectsClient(conn).Follow(ctx)
	if err != nil {
		return err
	}
	updates := make(chan *linkv1.HubNews)
	ended := make(chan error, 1)
	go receive(ctx, stream, updates, ended)
	if err := f.sendRefs(ctx, stream); err != nil {
		return notFollowed(err)
	}
	var due <-chan time.Time
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case n := <-updates:
			err = f.handle(ctx, n)
		case <-f.o.wake:
			err = f.sendRefs(ctx, stream)
		case <-f.o.wrote:
			if due == nil {
				due, stop = f.o.clock.After(shownPause)
			}
		case <-due:
			due, stop = nil, func() {}
			err = f.checkWritten(ctx, stream)
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return notFollowed(err)
		}
	}
}

func notFollowed(err error) error {
	if errors.Is(err, errUnwanted) {
		return nil
	}
	return err
}

// receive passes on what the hub sends, until the stream ends.
func receive(ctx context.Context, stream grpc.BidiStreamingClient[linkv1.HubWants, linkv1.HubNews], updates chan<- *linkv1.HubNews, ended chan<- error) {
	for {
		n, err := stream.Recv()
		if err != nil {
			ended <- err
			return
		}
		select {
		case updates <- n:
		case <-ctx.Done():
			return
		}
	}
}

// checkWritten requests all objects again if the stream has not shown one that
// was written by this agent: it may have been deleted, and a new reply is
// complete.
func (f *follow) checkWritten(ctx context.Context, stream grpc.BidiStreamingClient[linkv1.HubWants, linkv1.HubNews]) error {
	written, others := f.o.takeWritten()
	if others > 0 {
		notify(f.o.wrote)
	}
	if slices.ContainsFunc(written, func(key manifest.Key) bool { return f.last[key] == nil }) {
		return f.sendRefs(ctx, stream)
	}
	return nil
}

// sendRefs sets the followed objects.
func (f *follow) sendRefs(ctx context.Context, stream grpc.BidiStreamingClient[linkv1.HubWants, linkv1.HubNews]) error {
	f.asked = f.o.wanted()
	if len(f.asked) == 0 {
		return errUnwanted
	}
	f.serial++
	f.last = map[manifest.Key]*manifest.Object{} // the hub sends everything again
	w := &linkv1.HubWants{Serial: f.serial}
	for _, r := range f.asked {
		if r.Version == served {
			w.Refs = append(w.Refs, r.link())
			continue
		}
		f.sink.Broken(ctx, r.kind(), "", fault.New(fault.Missing, "the hub serves %s/%s %s, and no %s", r.Key.Group, served, r.Key.Kind, r.Version))
	}
	return stream.Send(w)
}

func (f *follow) handle(ctx context.Context, n *linkv1.HubNews) error {
	if n.GetSerial() != f.serial {
		return nil // it is a reply to an earlier request
	}
	for _, got := range n.GetObjects() {
		o, err := manifest.FromCanonical(got.GetObject())
		if err != nil {
			return err
		}
		f.last[manifest.KeyOf(o)] = o
		f.sink.OnUpdate(ctx, o)
	}
	for _, r := range n.GetGone() {
		f.removed(ctx, manifest.Key{Group: manifest.HubGroup, Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()})
	}
	if n.GetComplete() {
		f.complete(ctx)
	}
	return nil
}

func (f *follow) removed(ctx context.Context, key manifest.Key) {
	if o := f.last[key]; o != nil {
		delete(f.last, key)
		f.sink.OnDelete(ctx, o)
	}
}

// complete reports the complete list of each kind.
func (f *follow) complete(ctx context.Context) {
	lists := map[schema.GroupVersionKind]map[string]struct{}{}
	for _, r := range f.asked {
		if r.Version == served && lists[r.kind()] == nil {
			lists[r.kind()] = map[string]struct{}{}
		}
	}
	for key, o := range f.last {
		list := lists[schema.GroupVersionKind{Group: key.Group, Version: served, Kind: key.Kind}]
		if list == nil {
			continue
		}
		list[string(o.GetUID())] = struct{}{}
		list[key.Namespace+"/"+key.Name] = struct{}{}
	}
	for gvk, list := range lists {
		f.sink.Broken(ctx, gvk, "", nil)
		f.sink.OnReplace(ctx, gvk, "", "", false, list)
	}
}

// interrupted reports the end of a stream, and returns how long to wait before
// the next one.
func (f *follow) interrupted(ctx context.Context, err error, back *lifecycle.Backoff) time.Duration {
	offline := fault.KindOf(err) == fault.Offline
	if !offline {
		f.o.log.WarnContext(ctx, "objects of the hub are not followed", logkey.Error, err)
	}
	f.broken(ctx, err)
	wait := back.Next()
	if offline {
		return min(wait, time.Second)
	}
	return wait
}

// broken reports for each kind that it is not followed now.
func (f *follow) broken(ctx context.Context, err error) {
	reported := map[schema.GroupVersionKind]bool{}
	for _, r := range f.o.wanted() {
		if !reported[r.kind()] {
			reported[r.kind()] = true
			f.sink.Broken(ctx, r.kind(), "", err)
		}
	}
}
