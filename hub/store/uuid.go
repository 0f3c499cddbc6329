package store

import (
	"context"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A uuidCodec sends identifiers, which are strings here, as their 16 bytes. The
// driver's own codec cannot do so: it first makes an error of the whole list,
// and then a text that the database has to parse.
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode returns how a value is sent.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if t := reflect.TypeOf(value); format == pgtype.BinaryFormatCode && t != nil && t.Kind() == reflect.String {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

type uuidPlan struct{}

// Encode appends an identifier. An invalid one is sent as text, and the
// database refuses it.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, err := uuid.Parse(reflect.ValueOf(value).String())
	if err != nil {
		return nil, fmt.Errorf("no identifier: %w", err)
	}
	return append(buf, id[:]...), nil
}

// knowTypes teaches a connection how identifiers are sent.
func knowTypes(_ context.Context, conn *pgx.Conn) error {
	registerTypes(conn.TypeMap())
	return nil
}

func registerTypes(m *pgtype.Map) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	m.RegisterType(id)
	m.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: id}})
}
