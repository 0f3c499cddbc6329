// Package objects serves to agents the objects of the hub that the applications
// of their clusters render: applications and projects (app of apps). It reports
// their state, and forwards writes and deletions. The catalog decides what is
// written and whether it may be. Agents call it over the link. An agent reaches
// only objects that an application of its own cluster renders, and names
// manifests by digest, so it can send none of its own.
package objects

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	maxRefs   = 20_000                 // that one agent may follow
	page      = 500                    // objects read at once
	replySize = 512 << 10              // bytes in one message, unless one object is larger
	pace      = 100 * time.Millisecond // between two reads because of changes
	slow      = 30 * time.Second       // between two reads without a change
)

// Catalog is the one write path.
type Catalog interface {
	Rendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, refs []hub.RenderedRef) ([]hub.RenderedObject, error)
	PutRendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, want hub.RenderedWrite) (hub.RenderedObject, error)
	DeleteRendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, ref hub.RenderedRef, uid string) (hub.RenderedDeletion, error)
}

// A Reader returns the changes of a tenant, from the feed.
type Reader interface {
	Next(ctx context.Context) ([]hub.Change, error)
	Close()
}

// Feed begins to follow the changes of a tenant from now on.
type Feed func(ctx context.Context, tenant hub.TenantID) (Reader, error)

// Caller says whose agent is calling.
type Caller func(ctx context.Context) (hub.TenantID, hub.ClusterID, error)

// A Server is the link service.
type Server struct {
	linkv1.UnimplementedHubObjectsServer
	catalog Catalog
	feed    Feed
	caller  Caller
	clock   lifecycle.Clock
	log     *slog.Logger
}

// New makes the service.
func New(catalog Catalog, feed Feed, caller Caller, clock lifecycle.Clock, log *slog.Logger) *Server {
	return &Server{catalog: catalog, feed: feed, caller: caller, clock: clock, log: log}
}

func refOf(r *linkv1.HubRef) (hub.RenderedRef, error) {
	out := hub.RenderedRef{Parent: hub.ApplicationID(r.GetAppId()), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if !hub.ValidID(r.GetAppId()) || !manifest.InHub(manifest.HubGroup, r.GetKind()) || r.GetName() == "" {
		return out, fault.New(fault.Invalid, "no object of the hub is named so")
	}
	return out, nil
}

func linkRef(r hub.RenderedRef) *linkv1.HubRef {
	return &linkv1.HubRef{AppId: string(r.Parent), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func linkObject(o hub.RenderedObject) *linkv1.HubObject {
	return &linkv1.HubObject{Ref: linkRef(o.RenderedRef), Object: o.Object}
}

// Read returns one object; empty if there is none.
func (s *Server) Read(ctx context.Context, r *linkv1.HubRef) (*linkv1.HubObject, error) {
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := refOf(r)
	if err != nil {
		return nil, err
	}
	found, err := s.catalog.Rendered(ctx, tenant, cluster, []hub.RenderedRef{ref})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return &linkv1.HubObject{Ref: r}, nil
	}
	return linkObject(found[0]), nil
}

// Apply brings one object to an accepted manifest.
func (s *Server) Apply(ctx context.Context, r *linkv1.HubApply) (*linkv1.HubObject, error) {
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := refOf(r.GetRef())
	if err != nil {
		return nil, err
	}
	if len(r.GetDigest()) != len(hub.Digest{}) {
		return nil, fault.New(fault.Invalid, "a digest has %d bytes instead of 32", len(r.GetDigest()))
	}
	o, err := s.catalog.PutRendered(ctx, tenant, cluster, hub.RenderedWrite{RenderedRef: ref, Digest: hub.Digest(r.GetDigest()), DryRun: r.GetDryRun()})
	if err != nil {
		return nil, err
	}
	return linkObject(o), nil
}

// Delete deletes one object whose deletion the hub itself has requested.
func (s *Server) Delete(ctx context.Context, r *linkv1.HubDelete) (*linkv1.HubDeleted, error) {
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := refOf(r.GetRef())
	if err != nil {
		return nil, err
	}
	d, err := s.catalog.DeleteRendered(ctx, tenant, cluster, ref, r.GetUid())
	if err != nil {
		return nil, err
	}
	return &linkv1.HubDeleted{Gone: d.Gone, Other: d.Other, Waits: d.Waits}, nil
}

// Follow reports the state of objects, until the stream ends.
func (s *Server) Follow(stream grpc.BidiStreamingServer[linkv1.HubWants, linkv1.HubNews]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return err
	}
	f := &follower{s: s, tenant: tenant, cluster: cluster, stream: stream, moved: make(chan struct{}, 1), wants: make(chan *linkv1.HubWants), ended: make(chan error, 1)}
	// It ends with the stream, which ends when this method returns.
	go func() { f.ended <- f.receive(ctx) }()
	g := lifecycle.NewGroup(ctx)
	g.Go(f.changes)
	g.Go(f.sendAll)
	err = g.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A follower is one stream.
type follower struct {
	s       *Server
	tenant  hub.TenantID
	cluster hub.ClusterID
	stream  grpc.BidiStreamingServer[linkv1.HubWants, linkv1.HubNews]
	moved   chan struct{}
	wants   chan *linkv1.HubWants
	ended   chan error // receives the end of the agent's side

	serial   uint64
	refs     []hub.RenderedRef
	lastSent map[hub.RenderedRef][32]byte // hash of what was sent last
}

func (f *follower) receive(ctx context.Context) error {
	for {
		w, err := f.stream.Recv()
		if err != nil {
			return err
		}
		select {
		case f.wants <- w:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changes notifies when applications, application sets or projects of the tenant have changed.
func (f *follower) changes(ctx context.Context) error {
	for {
		reader, err := f.s.feed(ctx, f.tenant)
		if err != nil {
			return err
		}
		err = f.read(ctx, reader)
		reader.Close()
		if fault.KindOf(err) != fault.Missing { // else it was cut off: everything is read again
			return err
		}
		f.notify()
	}
}

func (f *follower) read(ctx context.Context, reader Reader) error {
	for {
		changes, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(changes, func(c hub.Change) bool {
			return c.Kind == "application" || c.Kind == "applicationset" || c.Kind == "project"
		}) {
			f.notify()
		}
	}
}

func (f *follower) notify() {
	select {
	case f.moved <- struct{}{}:
	default:
	}
}

// sendAll sends everything after a new set, and differences after a change.
func (f *follower) sendAll(ctx context.Context) error {
	for {
		tick, stop := f.s.clock.After(slow)
		var err error
		select {
		case w := <-f.wants:
			err = f.setFollowed(ctx, w)
		case <-f.moved:
			if err = f.sendChanges(ctx, false); err == nil {
				err = lifecycle.Sleep(ctx, f.s.clock, pace)
			}
		case <-tick:
			err = f.sendChanges(ctx, false)
		case err = <-f.ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
		stop()
		if err != nil {
			return err
		}
	}
}

func (f *follower) setFollowed(ctx context.Context, w *linkv1.HubWants) error {
	if len(w.GetRefs()) > maxRefs {
		return fault.New(fault.Exceeded, "%d objects of the hub were requested, the limit is %d", len(w.GetRefs()), maxRefs)
	}
	f.serial, f.refs, f.lastSent = w.GetSerial(), nil, map[hub.RenderedRef][32]byte{}
	for _, r := range w.GetRefs() {
		ref, err := refOf(r)
		if err != nil {
			return err
		}
		f.refs = append(f.refs, ref)
	}
	return f.sendChanges(ctx, true)
}

// sendChanges reads what is followed and sends what was not sent yet.
func (f *follower) sendChanges(ctx context.Context, complete bool) error {
	there := map[hub.RenderedRef]bool{}
	u := &update{f: f, message: &linkv1.HubNews{Serial: f.serial}}
	for part := range slices.Chunk(f.refs, page) {
		found, err := f.s.catalog.Rendered(ctx, f.tenant, f.cluster, part)
		if err != nil {
			f.s.log.WarnContext(ctx, "objects of the hub not read for an agent", logkey.Cluster, string(f.cluster), logkey.Error, err)
			return err
		}
		for _, o := range found {
			there[o.RenderedRef] = true
			if err := u.add(o); err != nil {
				return err
			}
		}
	}
	for ref := range f.lastSent {
		if !there[ref] {
			u.message.Gone = append(u.message.Gone, linkRef(ref))
			delete(f.lastSent, ref)
		}
	}
	u.message.Complete = complete
	if !complete && len(u.message.Objects)+len(u.message.Gone) == 0 {
		return nil
	}
	return f.stream.Send(u.message)
}

// An update is the message that is being filled.
type update struct {
	f       *follower
	message *linkv1.HubNews
	size    int // of its objects, in bytes
}

// add adds an object unless it was sent as it is. A message that would become
// too large is sent before.
func (u *update) add(o hub.RenderedObject) error {
	sum := sha256.Sum256(o.Object)
	if was, sent := u.f.lastSent[o.RenderedRef]; sent && was == sum {
		return nil
	}
	if u.size > 0 && u.size+len(o.Object) > replySize {
		if err := u.f.stream.Send(u.message); err != nil {
			return err
		}
		u.message, u.size = &linkv1.HubNews{Serial: u.f.serial}, 0
	}
	u.message.Objects = append(u.message.Objects, linkObject(o))
	u.f.lastSent[o.RenderedRef] = sum
	u.size += len(o.Object)
	return nil
}
