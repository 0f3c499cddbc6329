package wire

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Each kind of row on the wire has a life in the hub, and the hub has no other
// kinds: a kind without one would never be read again.
func TestRowKindsAreTotal(t *testing.T) {
	t.Parallel()
	for number, name := range linkv1.RowKind_name {
		life := hub.RowKind(number).Life()
		if unspecified := number == int32(linkv1.RowKind_ROW_KIND_UNSPECIFIED); unspecified != (life == 0) {
			t.Errorf("%s has the life %d", name, life)
		}
	}
	for _, life := range []hub.RowLife{hub.WhileNewest, hub.WhileForgotten, hub.WhileOperationOpen} {
		for _, kind := range life.Kinds() {
			if _, there := linkv1.RowKind_name[int32(kind)]; !there {
				t.Errorf("the wire knows no kind %d", kind)
			}
		}
	}
}
