package store

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/capstan-cd/capstan/hub"
)

func TestIdentifiersGoAsBytes(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	registerTypes(types)
	encode := func(t *testing.T, oid uint32, value any) []byte {
		t.Helper()
		out, err := types.Encode(oid, pgtype.BinaryFormatCode, value, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	id := hub.NewID[hub.ApplicationID]()
	one := encode(t, pgtype.UUIDOID, id)
	t.Run("an identifier, named or not", func(t *testing.T) {
		t.Parallel()
		if len(one) != 16 || !bytes.Equal(one, encode(t, pgtype.UUIDOID, string(id))) {
			t.Errorf("%x", one)
		}
		var back hub.ApplicationID
		if err := types.Scan(pgtype.UUIDOID, pgtype.BinaryFormatCode, one, &back); err != nil || back != id {
			t.Errorf("%v came back as %v, %v", id, back, err)
		}
	})
	t.Run("a list of them", func(t *testing.T) {
		t.Parallel()
		for name, list := range map[string]any{"named": []hub.ApplicationID{id, id}, "plain": []string{string(id), string(id)}} {
			if got := encode(t, pgtype.UUIDArrayOID, list); bytes.Count(got, one) != 2 || len(got) != 20+2*20 {
				t.Errorf("%s: %x", name, got)
			}
		}
		if got := encode(t, pgtype.UUIDArrayOID, []any{id, nil}); bytes.Count(got, one) != 1 {
			t.Errorf("one and nothing: %x", got)
		}
		if got := encode(t, pgtype.UUIDArrayOID, []hub.ApplicationID{}); len(got) != 20 { // one dimension of length 0
			t.Errorf("none: %x", got)
		}
	})
	t.Run("an invalid id is refused by the database", func(t *testing.T) {
		t.Parallel()
		for _, value := range []any{hub.ApplicationID("x"), []hub.ApplicationID{id, ""}} {
			oid := uint32(pgtype.UUIDOID)
			if _, list := value.([]hub.ApplicationID); list {
				oid = pgtype.UUIDArrayOID
			}
			if _, err := types.Encode(oid, pgtype.BinaryFormatCode, value, nil); err == nil {
				t.Errorf("%v was sent as bytes", value)
			}
			if _, err := types.Encode(oid, pgtype.TextFormatCode, value, nil); err != nil {
				t.Errorf("%v was not sent as text: %v", value, err)
			}
		}
	})
}
