// Package trust has the handlers of the API for what the hub trusts: host keys,
// certificates of servers, and public keys for signatures. They parse, call and
// present. The API embeds them; rights and writes belong to the catalogue.
package trust

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
)

// Keys handle requests. Many goroutines may use them.
type Keys struct {
	catalog *catalog.Catalog
	caller  func(ctx context.Context) hub.Caller
}

// New makes them. The function returns who is calling.
func New(c *catalog.Catalog, caller func(ctx context.Context) hub.Caller) *Keys {
	return &Keys{c, caller}
}

func collect[In, Out any](in []In, present func(In) Out) []Out {
	out := make([]Out, len(in))
	for i, v := range in {
		out[i] = present(v)
	}
	return out
}
