package apply

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A desired is one object of a snapshot, without its body.
type desired struct {
	key        manifest.Key // with the namespace that it lives in
	gvk        schema.GroupVersionKind
	digest     [32]byte
	wave       int32
	hook       bool
	namespaced bool
}

// A snapshot is a resolved SnapshotRef.
type snapshot struct {
	id, revision string
	listed       string // the inventory's name for the lists of its references; empty: none
	all          []*desired
	objects      map[manifest.Key]*desired // without hooks; of two with one key the last
	excluded     []manifest.Key            // of excluded kinds; they are in no other field
	unserved     bool                      // some kind is not served yet, its scope is a guess
}

func (s *snapshot) digests() [][]byte {
	out := make([][]byte, len(s.all))
	for i, d := range s.all {
		out[i] = d.digest[:]
	}
	return out
}

// get is nil-safe: an application without a snapshot lists nothing.
func (s *snapshot) get(key manifest.Key) *desired {
	if s == nil {
		return nil
	}
	return s.objects[key]
}

func (s *snapshot) name() string {
	if s == nil {
		return ""
	}
	return s.id
}

// resolve finds out where the objects of a snapshot live. namespace is the
// destination's.
func (e *Engine) resolve(ctx context.Context, ref *linkv1.SnapshotRef, namespace string) (*snapshot, error) {
	if ref == nil {
		return nil, nil
	}
	refs := ref.GetObjects()
	if lists := inventory.Lists(ref); len(lists) > 0 {
		var err error
		if refs, err = e.readLists(ctx, lists); err != nil {
			return nil, err
		}
	}
	s := &snapshot{
		id: ref.GetId(), revision: ref.GetRevision(), listed: inventory.Listed(ref),
		all: make([]*desired, 0, len(refs)), objects: make(map[manifest.Key]*desired, len(refs)),
	}
	scopes := map[schema.GroupVersionKind]bool{}
	for _, r := range refs {
		if e.Excluded(r.GetGroup(), r.GetKind()) {
			s.excluded = append(s.excluded, manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()})
			continue
		}
		d, err := e.resolveNamespace(ctx, r, namespace, scopes, s)
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, d)
		if !d.hook {
			s.objects[d.key] = d
		}
	}
	return s, nil
}

// resolveNamespace finds the namespace of one object. For a kind that is not
// served yet the reference decides.
func (e *Engine) resolveNamespace(ctx context.Context, r *linkv1.ObjectRef, namespace string, scopes map[schema.GroupVersionKind]bool, s *snapshot) (*desired, error) {
	d := &desired{
		key:  manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()},
		gvk:  schema.GroupVersionKind{Group: r.GetGroup(), Version: r.GetVersion(), Kind: r.GetKind()},
		wave: r.GetWave(), hook: r.GetHook() != "",
	}
	if copy(d.digest[:], r.GetDigest()) != len(d.digest) || len(r.GetDigest()) != len(d.digest) {
		return nil, fault.New(fault.Invalid, "the hub named %s by a digest of %d bytes", d.key.Describe(), len(r.GetDigest()))
	}
	namespaced, known := scopes[d.gvk]
	if !known {
		_, scope, err := e.Mapper.Resource(ctx, d.gvk)
		switch {
		case err == nil:
			namespaced = scope
		case fault.KindOf(err) == fault.Missing, groupAway(err):
			s.unserved = true
			namespaced = true
		default:
			return nil, fmt.Errorf("find out where %s lives: %w", d.key.Describe(), err)
		}
		scopes[d.gvk] = namespaced
	}
	d.namespaced = namespaced
	switch {
	case !namespaced:
		d.key.Namespace = ""
	case d.key.Namespace == "":
		d.key.Namespace = namespace
		if namespace == "" && inHub(d.key) {
			d.key.Namespace = defaultNamespace
		}
	}
	return d, nil
}

// groupAway reports whether a kind could not be found because the server of its
// group does not respond.
func groupAway(err error) bool {
	var away interface{ GroupAway() }
	return errors.As(err, &away)
}

// readLists reads the references in blobs, in order.
func (e *Engine) readLists(ctx context.Context, digests [][]byte) ([]*linkv1.ObjectRef, error) {
	plain, err := e.blobs(ctx, digests)
	if err != nil {
		return nil, err
	}
	var all linkv1.ObjectList
	for _, b := range plain {
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(b, &all); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the hub sent a list of objects that is not readable")
		}
	}
	return all.GetObjects(), nil
}

// blobs decrypts bodies, and fetches missing ones from the hub.
func (e *Engine) blobs(ctx context.Context, digests [][]byte) ([][]byte, error) {
	out := make([][]byte, len(digests))
	var absent [][]byte
	for i, d := range digests {
		plain, found, err := e.storedBlob(d)
		if err != nil {
			return nil, err
		}
		if !found {
			absent = append(absent, d)
		}
		out[i] = plain
	}
	if len(absent) == 0 {
		return out, nil
	}
	fetched, err := e.fetch(ctx, absent)
	if err != nil {
		return nil, err
	}
	for i, d := range digests {
		if out[i] != nil {
			continue
		}
		sealed, ok := fetched[string(d)]
		if !ok {
			return nil, fault.New(fault.Missing, "the hub does not have an object of the desired state (%x)", d[:4])
		}
		if out[i], err = e.open(d, sealed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// storedBlob decrypts a body of the inventory.
func (e *Engine) storedBlob(digest []byte) (plain []byte, found bool, err error) {
	sealed, found, err := e.Inventory.Blob(digest)
	if err != nil || !found {
		return nil, false, err
	}
	plain, err = e.open(digest, sealed)
	return plain, true, err
}

// fetch fetches bodies from the hub, and stores them. It returns them
// encrypted, by digest.
func (e *Engine) fetch(ctx context.Context, digests [][]byte) (map[string][]byte, error) {
	failpoint.Here(failpoint.AgentBlobsBefore)
	blobs, err := e.Blobs.Fetch(ctx, digests)
	if len(blobs) > 0 {
		e.Inventory.PutBlobs(blobs) // also after an error: the next fetch needs fewer
	}
	if err != nil {
		return nil, fault.Wrap(fault.Offline, err, "%d objects are missing, and the hub cannot be reached now", len(digests)-len(blobs))
	}
	out := make(map[string][]byte, len(blobs))
	for _, b := range blobs {
		out[string(b.GetDigest())] = b.GetSealed()
	}
	return out, nil
}

func (e *Engine) open(digest, sealed []byte) ([]byte, error) {
	key, err := encryption.KeyFrom(e.Secret.Keys().Object)
	if err != nil {
		return nil, fault.New(fault.Offline, "the key of the objects is missing; the first session with the hub provides it")
	}
	plain, err := encryption.OpenBlob(key, [32]byte(digest), sealed)
	if err != nil {
		return nil, fmt.Errorf("open object %x: %w", digest[:4], err)
	}
	return plain, nil
}

// body reads the manifest of one object.
func (e *Engine) body(ctx context.Context, digest [32]byte) (*manifest.Object, error) {
	plain, err := e.blobs(ctx, [][]byte{digest[:]})
	if err != nil {
		return nil, err
	}
	return manifest.FromCanonical(plain[0])
}
