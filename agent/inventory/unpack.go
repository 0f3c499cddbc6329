package inventory

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/compress"
)

// Unpack gives the rows of a batch their bodies. held gives the serialised
// latest state of an application, nil if there is none. It fails with
// pack.ErrBase if the hub packed a row against a state that is not held; then
// the hub must send it in full.
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

// body is the serialised latest state of an application; nil if there is
// none. The caller holds s.mu. A state of a newer hub may come out in another order than it went in:
// the base's name tells.
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
