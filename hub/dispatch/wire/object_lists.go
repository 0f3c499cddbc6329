package wire

import (
	"crypto/sha256"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

const (
	// maxInlineRefs is how many objects a row lists itself; more travel as
	// lists in blobs, because a row goes over the control lane.
	maxInlineRefs = 500
	// A list ends behind an object whose name says so, which one of
	// listSpread does, and has at least and at most this many. So an object
	// that comes, goes or changes makes one or two lists new and leaves the
	// others what they were.
	listLeast, listSpread, listMost = 32, 64, 256
)

// cutLists returns the parts of a long list of objects, in order.
func cutLists(objects []hub.ObjectRef) [][]hub.ObjectRef {
	var out [][]hub.ObjectRef
	first := 0
	for i := range objects {
		if n := i + 1 - first; n == listMost || n >= listLeast && ends(&objects[i]) {
			out = append(out, objects[first:i+1])
			first = i + 1
		}
	}
	if first < len(objects) {
		out = append(out, objects[first:])
	}
	return out
}

// ends reports whether a list ends behind an object. Its content has no say.
func ends(o *hub.ObjectRef) bool {
	h := fnv.New64a()
	for _, s := range []string{o.Group, o.Kind, o.Namespace, o.Name} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()%listSpread == 0
}

// AddLists names the lists of a snapshot with many objects, as add seals them.
func AddLists(s *hub.Snapshot, add func(plain []byte) (hub.Digest, error)) error {
	if len(s.Objects) <= maxInlineRefs {
		return nil
	}
	for _, part := range cutLists(s.Objects) {
		plain, err := Marshal(&linkv1.ObjectList{Objects: objectRefs(part)})
		if err != nil {
			return err
		}
		digest, err := add(plain)
		if err != nil {
			return err
		}
		s.Lists = append(s.Lists, digest)
	}
	return nil
}

// refLists has a reference name its lists. An agent that knows of one list
// only finds none under the name of several, and does nothing.
func refLists(ref *linkv1.SnapshotRef, lists []hub.Digest) {
	if len(lists) == 1 {
		ref.List = lists[0][:]
		return
	}
	all := sha256.New()
	for i := range lists {
		ref.Lists = append(ref.Lists, lists[i][:])
		_, _ = all.Write(lists[i][:])
	}
	ref.List = all.Sum(nil)
}

// listBlobs are the blobs that hold the lists of a reference.
func listBlobs(ref *linkv1.SnapshotRef) [][]byte {
	if lists := ref.GetLists(); len(lists) > 0 {
		return lists
	}
	return [][]byte{ref.GetList()}
}

// Digests lists the objects that a state row lists itself. A body that does
// not parse has none; the agent will say what is wrong with it.
func Digests(body []byte) []hub.Digest {
	var m linkv1.AppState
	if proto.Unmarshal(body, &m) != nil {
		return nil
	}
	var out []hub.Digest
	for _, ref := range []*linkv1.SnapshotRef{m.Target, m.Accepted} {
		for _, o := range ref.GetObjects() {
			if len(o.Digest) == len(hub.Digest{}) {
				out = append(out, hub.Digest(o.Digest))
			}
		}
		for _, list := range listBlobs(ref) {
			if len(list) == len(hub.Digest{}) {
				out = append(out, hub.Digest(list))
			}
		}
	}
	return out
}
