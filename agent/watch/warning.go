package watch

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Warnings passes an API server's warnings to the sender of the request, and
// drops them if there is no receiver.
type Warnings struct{}

var _ rest.WarningHandlerWithContext = Warnings{}

// HandleWarningHeaderWithContext processes one warning.
func (Warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if h, ok := ctx.Value(heardKey{}).(*heard); ok && text != "" {
		h.add(text)
	}
}

type heardKey struct{}

// heard are the warnings in replies to the requests of one kind.
type heard struct {
	mu    sync.Mutex
	texts []string
}

// mostWarnings of one kind are stored.
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

// warn reports the server's warnings since the watch started: lists and watches
// get one warning, that their version is going to be removed.
func (k *reflector) warn(ctx context.Context, h *heard) {
	if text := h.String(); text != k.warned {
		k.warned = text
		k.w.sink.Warned(ctx, k.gvk, text)
	}
}
