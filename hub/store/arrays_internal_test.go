package store

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// The driver reads arrays as the database does.
func TestArrayText(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	for _, in := range [][]string{
		nil, {""}, {"a", "b"}, {`"quoted"`, `{a,b}`, `back\slash\\`, "NULL", " spaces ", "two\nlines", "ü"},
	} {
		var out []string
		if err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(arrayText(in)), &out); err != nil || !slices.Equal(in, out) {
			t.Errorf("%q is read as %q: %v", in, out, err)
		}
	}
	if got := arrayText([]string{"nul \x00 and \xff"}); got != "{\"nul \uFFFD and \uFFFD\"}" {
		t.Errorf("what the database does not keep becomes %q", got)
	}
}
