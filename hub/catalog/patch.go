package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// ForUpdate returns an application as it is stored, for a caller who may update
// it. What they make of it goes to PutApplication, which asks again.
func (c *Catalog) ForUpdate(ctx context.Context, by hub.Caller, namespace, name string) (hub.Application, error) {
	by.Idempotency, by.Bulk = hub.IdempotencyKey{}, hub.BulkMark{} // nothing is written yet
	var a hub.Application
	err := c.write(ctx, by, func(ctx context.Context, w *writer) (err error) {
		a, err = w.forWrite(ctx, namespace, name, access.Update)
		return err
	})
	return a, err
}
