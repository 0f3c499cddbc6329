package watch

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Warnings hands what an API server warns of to whoever sent the request, and
// drops it if nobody asked for it.
type Warnings struct{}

var _ rest.WarningHandlerWithContext = Warnings{}

// HandleWarningHeaderWithContext takes one warning.
func (Warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if h, ok := ctx.Value(heardKey{}).(*heard); ok && text != "" {
		h.add(text)
	}
}

type heardKey struct{}

// heard is what was warned of in answer to the requests of one kind.
type heard struct {
	mu    sync.Mutex
	texts []string
}

// mostWarnings of one kind are kept.
const mostWarnings = 4

func (h *heard) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.texts, text) && len(h.texts) < mostWarnings {
		h.texts = append(h.texts, text)
	}
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.texts, "; ")
}

// warn tells what the server has warned of since the watch was begun: lists and
// watches are warned of one thing, that their version is going to be removed.
func (k *reflector) warn(ctx context.Context, h *heard) {
	if text := h.String(); text != k.warned {
		k.warned = text
		k.w.sink.Warned(ctx, k.gvk, text)
	}
}
