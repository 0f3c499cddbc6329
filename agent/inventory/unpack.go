package inventory

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/compress"
)

// Unpack restores the bodies of a batch's rows. held returns the serialised
// latest state of an application, or nil. It fails with compress.ErrBase if the
// hub compressed a row against another state; then the hub must send the row
// uncompressed.
func Unpack(b *linkv1.Batch, held func(app string) []byte) error {
	bodies := map[string][]byte{}
	for _, row := range b.GetRows() {
		if len(row.GetPacked()) > 0 {
			base := bodies[row.GetAppId()]
			if base == nil && len(row.GetBase()) > 0 {
				base = held(row.GetAppId())
			}
			body, err := compress.Unpack(row.GetPacked(), base, row.GetBase())
			if err != nil {
				return fmt.Errorf("row %d of the desired log: %w", row.GetSeq(), err)
			}
			row.Body, row.Packed, row.Base = body, nil, nil
		}
		if row.GetKind() == linkv1.RowKind_ROW_KIND_STATE {
			bodies[row.GetAppId()] = row.GetBody()
		}
	}
	return nil
}

// body is the serialised latest state of an application, or nil. The caller
// holds s.mu. A state of a newer hub may serialise in another order: the base's
// hash detects that.
func (s *Store) body(app string) []byte {
	a, ok := s.apps[app]
	if !ok {
		return nil
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.State)
	if err != nil {
		return nil
	}
	return body
}
