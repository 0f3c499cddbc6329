package watch

import (
	"context"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// SeeForTest gives a tree an object as a watch would.
func SeeForTest(t *Tree, o *manifest.Object) { t.onUpdate(context.Background(), o) }
