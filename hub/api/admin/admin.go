// Package admin has the handlers of the API for what is above single objects:
// the life of tenants and the audit log. They parse, call and present. The API
// embeds them; rights and writes belong to the catalogue.
package admin

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/identity"
)

// Handlers answer requests. Many goroutines may use them.
type Handlers struct {
	catalog  *catalog.Catalog
	identity *identity.Service
	caller   func(ctx context.Context) hub.Caller
	quotas   Forgetter
}

// A Forgetter has limits of a tenant read anew that have changed.
type Forgetter interface {
	Forget(tenant hub.TenantID)
}

// New makes them. The function returns who is calling; quotas may be nil.
func New(c *catalog.Catalog, s *identity.Service, caller func(ctx context.Context) hub.Caller, quotas Forgetter) *Handlers {
	return &Handlers{c, s, caller, quotas}
}

// A download is an answer that is written while it is read. An error in the
// middle ends the connection, so that nobody takes a part for the whole.
type download struct {
	ctx         context.Context //nolint:containedctx // the answer is written where no other is passed
	contentType string
	name        string
	write       func(ctx context.Context, w io.Writer) error
}

func (d download) send(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", d.contentType)
	w.Header().Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
	w.WriteHeader(http.StatusOK)
	if err := d.write(d.ctx, w); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
