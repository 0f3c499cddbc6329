package wire

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// What does not go through the link would keep every later row of its cluster
// from going through, or its application from ever being applied. So it is
// refused before it is written.
const (
	maxRow      = 1<<20 - 64<<10  // bytes of a row's body; a message of the control lane takes 1 MiB
	MaxSettings = 1<<20 - 256<<10 // the same for settings, which may share a message with the buckets of a replay
	maxBlob     = 4<<20 - 64<<10  // bytes of a sealed blob; a message of the bulk lane takes 4 MiB
)

// An oversize is an error about something that is too large for the link: it
// concerns one application alone.
type oversize struct{ error }

// Unwrap gives the sentence for people.
func (o oversize) Unwrap() error { return o.error }

// Oversize marks an error as one about something that is too large for the
// link.
func Oversize(err error) error { return oversize{err} }

// IsOversize reports whether an error is about something that is too large for
// the link.
func IsOversize(err error) bool {
	var o oversize
	return errors.As(err, &o)
}

// CheckSize refuses a state or an operation that would be too large for a row.
func (s State) CheckSize(op *hub.Operation, own *hub.Snapshot, keys func() (hub.TenantKeys, error)) error {
	object := "application " + s.App.Name
	if s.weight() > maxRow/2 {
		body, _, err := s.Body(keys)
		if err != nil {
			return err
		}
		if len(body) > maxRow {
			return oversize{fault.With(fault.New(fault.Exceeded, "its desired state has %d bytes, and at most %d can be sent to its cluster at once", len(body), maxRow),
				object, "shorten the lists of its project or its sync policy, or split the application")}
		}
	}
	if op == nil || operationWeight(*op, own) <= maxRow/2 {
		return nil
	}
	body, err := OperationBody(*op, s.Spec, own)
	if err != nil {
		return err
	}
	if len(body) > maxRow {
		return oversize{fault.With(fault.New(fault.Exceeded, "the operation has %d bytes, and at most %d can be sent to its cluster at once", len(body), maxRow),
			object, "select fewer resources, or sync the whole application")}
	}
	return nil
}

// weight is about how large the row of a state will be; never much less.
func (s State) weight() int {
	n := snapshotWeight(s.Target) + snapshotWeight(s.Accepted) + maxInlineTombstoneBytes
	n += proto.Size(policyOf(s.App, s.Spec, s.Project, s.Cluster)) + proto.Size(orphansOf(s.Project))
	return n
}

func snapshotWeight(s *hub.Snapshot) int {
	if s == nil {
		return 200
	}
	n := 200 + len(s.Lists)*(len(hub.Digest{})+2)
	if len(s.Lists) > 0 {
		return n
	}
	for i := range s.Objects {
		o := &s.Objects[i]
		n += 80 + len(o.Group) + len(o.Version) + len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.Hook)
	}
	return n
}

func operationWeight(op hub.Operation, own *hub.Snapshot) int {
	n := 1000 + snapshotWeight(own)
	for _, list := range [][]string{op.Options.Resources, op.Options.SyncOptions} {
		for _, s := range list {
			n += 4 + len(s)
		}
	}
	return n
}

// CheckSealedSize refuses a sealed blob that no message could carry.
func CheckSealedSize(sealed []byte) error {
	if len(sealed) <= maxBlob {
		return nil
	}
	return oversize{fault.With(fault.New(fault.Exceeded, "compressed it has %d bytes, and at most %d can be sent to a cluster at once", len(sealed), maxBlob), "", "make it smaller")}
}
