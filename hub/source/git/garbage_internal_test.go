package git

import (
	"fmt"
	"testing"

	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestPacksHaveSentences covers the errors of packs that packstore refuses.
func TestPacksHaveSentences(t *testing.T) {
	t.Parallel()
	for _, err := range []error{packstore.ErrMalformed, packstore.ErrDamaged, packstore.LimitError{What: "the repository has too many bytes", Limit: 1}} {
		f := failure{err: fmt.Errorf("take in the pack: %w", err)}
		if kind := fault.KindOf(f.explain()); kind == fault.Internal {
			t.Errorf("SEC-B12 no sentence for %v", err)
		}
	}
}
