// Package relay serves the hub's requests about single live objects: read one,
// compare desired and live state, or delete one for a user. It changes nothing
// else, accesses only objects of the named application, and masks values of
// Secrets. The daemon serves it on the link.
package relay

import (
	"context"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An Object is the desired, live and last applied state of one managed object;
// each may be nil.
type Object struct {
	Key                    manifest.Key
	Version                string
	Sync, Summary          string
	Fields                 []string
	Desired, Live, Applied *manifest.Object
	Normalized             *manifest.Object // the fields of Live that the other two have, too
	Predicted              *manifest.Object // the result of a dry run
	Problem                string           // why the dry run was refused
}

// A Cluster provides live objects.
type Cluster interface {
	// Belongs reports whether an application manages the object, or something
	// that owns it.
	Belongs(app string, key manifest.Key) bool
	// Read returns a live object, without managedFields.
	Read(ctx context.Context, app string, key manifest.Key, version string) (*manifest.Object, error)
	// Inspect returns the managed objects of an application that match pick:
	// all, or those that differ. With predict, each has the result of a dry
	// run.
	Inspect(ctx context.Context, app string, all, predict bool, pick func(manifest.Key) bool) ([]Object, error)
	// CheckAccess returns what the application's service account lacks.
	CheckAccess(ctx context.Context, app string) (*linkv1.CheckAccessResponse, error)
}

// A Writer changes live objects of an application.
type Writer interface {
	// Delete deletes an object.
	Delete(ctx context.Context, app string, key manifest.Key, version string, force bool, propagation string) error
	// Patch changes an object, or says what a patch would make of it. kind is
	// merge, strategic or json.
	Patch(ctx context.Context, app string, key manifest.Key, version, kind string, body []byte, dryRun bool) (*manifest.Object, error)
}

// A Refresher compares applications again.
type Refresher interface {
	// Refresh compares an application again, or all for an empty id; false: the
	// id is unknown.
	Refresh(ctx context.Context, app string) bool
	// Confirm reports the current state of an application and returns when the
	// hub has stored it.
	Confirm(ctx context.Context, app string) error
}

// A Previewer compares objects that are not desired.
type Previewer interface {
	// Preview returns the objects that differ from the live ones.
	Preview(ctx context.Context, app string, objects []*manifest.Object) ([]Object, error)
	// Removed returns the objects of an application that are not among keys.
	Removed(ctx context.Context, app string, keys []manifest.Key) ([]Object, error)
}

// A Server serves Ops.
type Server struct {
	linkv1.UnimplementedOpsServer

	cluster Cluster
	write   Writer
	refresh Refresher
	preview Previewer
	hidden  func() []string // annotations of Secrets that are masked, too
	mask    func() []byte   // key of the keyed hashes of Secret values; empty: there is none yet
}

// New makes a server.
func New(cluster Cluster, write Writer, refresh Refresher, preview Previewer, mask func() []byte, hidden func() []string) *Server {
	return &Server{cluster: cluster, write: write, refresh: refresh, preview: preview, mask: mask, hidden: hidden}
}

// Get returns one live object.
func (s *Server) Get(ctx context.Context, r *linkv1.GetRequest) (*linkv1.GetResponse, error) {
	key := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if r.GetAppId() == "" || r.GetVersion() == "" || key.Kind == "" || key.Name == "" {
		return nil, fault.New(fault.Invalid, "an object is asked for by application, group, version, kind and name")
	}
	if !s.cluster.Belongs(r.GetAppId(), key) {
		return nil, fault.With(fault.New(fault.Missing, "it does not belong to the application"), key.Describe(), "")
	}
	o, err := s.cluster.Read(ctx, r.GetAppId(), key, r.GetVersion())
	if err != nil {
		return nil, err
	}
	text, err := s.text(o)
	if err != nil {
		return nil, err
	}
	return &linkv1.GetResponse{Json: text}, nil
}

// Diff returns desired and live of the objects of an application.
func (s *Server) Diff(ctx context.Context, r *linkv1.DiffRequest) (*linkv1.DiffResponse, error) {
	pick := func(manifest.Key) bool { return true }
	if r.GetKind() != "" {
		want := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
		pick = func(k manifest.Key) bool { return k == want }
	}
	objects, err := s.cluster.Inspect(ctx, r.GetAppId(), r.GetAll() || r.GetKind() != "", r.GetPredict(), pick)
	if err != nil {
		return nil, err
	}
	return s.differences(objects)
}

// maxPreviewed limits the objects of one call.
const maxPreviewed = 2000

// Preview compares objects that are not desired.
func (s *Server) Preview(ctx context.Context, r *linkv1.PreviewRequest) (*linkv1.DiffResponse, error) {
	if r.GetAppId() == "" || len(r.GetObjects()) > maxPreviewed {
		return nil, fault.New(fault.Invalid, "a preview is of one application, and of at most %d objects at once", maxPreviewed)
	}
	var found []Object
	if r.GetRemoved() {
		keys := make([]manifest.Key, 0, len(r.GetKept()))
		for _, k := range r.GetKept() {
			keys = append(keys, manifest.Key{Group: k.GetGroup(), Kind: k.GetKind(), Namespace: k.GetNamespace(), Name: k.GetName()})
		}
		removed, err := s.preview.Removed(ctx, r.GetAppId(), keys)
		if err != nil {
			return nil, err
		}
		found = removed
	}
	objects := make([]*manifest.Object, 0, len(r.GetObjects()))
	for _, text := range r.GetObjects() {
		o, err := manifest.FromCanonical(text)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	if len(objects) > 0 {
		differing, err := s.preview.Preview(ctx, r.GetAppId(), objects)
		if err != nil {
			return nil, err
		}
		found = append(found, differing...)
	}
	return s.differences(found)
}

func (s *Server) differences(objects []Object) (*linkv1.DiffResponse, error) {
	out := &linkv1.DiffResponse{}
	for _, o := range objects {
		d, err := s.difference(o)
		if err != nil {
			return nil, err
		}
		out.Objects = append(out.Objects, d)
	}
	return out, nil
}

func (s *Server) difference(o Object) (*linkv1.ObjectDiff, error) {
	d := &linkv1.ObjectDiff{
		Group: o.Key.Group, Version: o.Version, Kind: o.Key.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name,
		Sync: o.Sync, Summary: o.Summary, Fields: o.Fields, Problem: o.Problem,
	}
	for _, p := range [...]struct {
		from *manifest.Object
		to   *[]byte
	}{{o.Desired, &d.Desired}, {o.Live, &d.Live}, {o.Applied, &d.Applied}, {o.Normalized, &d.Normalized}, {o.Predicted, &d.Predicted}} {
		if p.from == nil {
			continue
		}
		text, err := s.text(p.from)
		if err != nil {
			return nil, err
		}
		*p.to = text
	}
	return d, nil
}

// Refresh compares again.
func (s *Server) Refresh(ctx context.Context, r *linkv1.RefreshRequest) (*linkv1.RefreshResponse, error) {
	if !s.refresh.Refresh(ctx, r.GetAppId()) && r.GetAppId() != "" {
		return nil, fault.New(fault.Missing, "the agent does not have this application")
	}
	return &linkv1.RefreshResponse{}, nil
}

// Confirm returns when the hub has everything that was seen of an application.
func (s *Server) Confirm(ctx context.Context, r *linkv1.ConfirmRequest) (*linkv1.ConfirmResponse, error) {
	if r.GetAppId() == "" {
		return nil, fault.New(fault.Invalid, "an application is confirmed by its id")
	}
	if err := s.refresh.Confirm(ctx, r.GetAppId()); err != nil {
		return nil, err
	}
	return &linkv1.ConfirmResponse{}, nil
}

// CheckAccess returns what the application's service account lacks.
func (s *Server) CheckAccess(ctx context.Context, r *linkv1.CheckAccessRequest) (*linkv1.CheckAccessResponse, error) {
	if r.GetAppId() == "" {
		return nil, fault.New(fault.Invalid, "an application is checked by its id")
	}
	return s.cluster.CheckAccess(ctx, r.GetAppId())
}

// Delete deletes one live object.
func (s *Server) Delete(ctx context.Context, r *linkv1.DeleteRequest) (*linkv1.DeleteResponse, error) {
	key := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if r.GetAppId() == "" || r.GetVersion() == "" || key.Kind == "" || key.Name == "" {
		return nil, fault.New(fault.Invalid, "an object is named by application, group, version, kind and name")
	}
	if !s.cluster.Belongs(r.GetAppId(), key) {
		return nil, fault.With(fault.New(fault.Missing, "it does not belong to the application"), key.Describe(), "")
	}
	if err := s.write.Delete(ctx, r.GetAppId(), key, r.GetVersion(), r.GetForce(), r.GetPropagation()); err != nil {
		return nil, err
	}
	return &linkv1.DeleteResponse{}, nil
}

// Patch changes one live object.
func (s *Server) Patch(ctx context.Context, r *linkv1.PatchRequest) (*linkv1.PatchResponse, error) {
	key := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if r.GetAppId() == "" || r.GetVersion() == "" || key.Kind == "" || key.Name == "" || len(r.GetPatch()) == 0 {
		return nil, fault.New(fault.Invalid, "a patch names application, group, version, kind and name")
	}
	if !s.cluster.Belongs(r.GetAppId(), key) {
		return nil, fault.With(fault.New(fault.Missing, "it does not belong to the application"), key.Describe(), "")
	}
	if len(s.mask()) == 0 {
		return nil, fault.New(fault.Offline, "the key that hides Secret values is missing")
	}
	o, err := s.write.Patch(ctx, r.GetAppId(), key, r.GetVersion(), r.GetType(), r.GetPatch(), r.GetDryRun())
	if err != nil {
		return nil, err
	}
	text, err := s.text(o)
	if err != nil {
		return nil, err
	}
	return &linkv1.PatchResponse{Json: text}, nil
}

// text writes an object with the values of a Secret masked. Without a key
// nothing is written: an unkeyed hash could be guessed.
func (s *Server) text(o *manifest.Object) ([]byte, error) {
	key := s.mask()
	if len(key) == 0 {
		return nil, fault.New(fault.Offline, "the key that hides Secret values is missing")
	}
	return manifest.Canonical(manifest.Mask(o, key, s.hidden()...))
}
