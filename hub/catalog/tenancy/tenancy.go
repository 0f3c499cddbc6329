// Package tenancy is the way in which people change what belongs to a tenant as
// a whole: tenants, accounts, tokens, settings, host keys and certificates of
// servers, and how they read its audit log. What always holds is what
// hub/catalog/transact promises. hub/catalog offers its methods beside its own.
package tenancy

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
)

// Tenants is the directory of the tenants.
type Tenants interface {
	CreateTenant(ctx context.Context, t hub.Tenant) error
	Tenants(ctx context.Context) ([]hub.Tenant, error)
	Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error)
	TenantByName(ctx context.Context, name string) (hub.Tenant, error)
}

// SetupLinks are the links with which the first admin of a tenant begins.
type SetupLinks interface {
	PutSetupLink(ctx context.Context, l hub.SetupLink) error
	SetupLink(ctx context.Context, hash [32]byte) (hub.SetupLink, error)
	// UseSetupLink takes a link away; of all who try, one gets it.
	UseSetupLink(ctx context.Context, hash [32]byte, now time.Time) (hub.SetupLink, error)
}

// Tenancy changes and reads what belongs to a tenant as a whole. Many
// goroutines may use it.
type Tenancy struct {
	transact  *transact.Service
	directory Tenants
	links     SetupLinks
}

// New makes it. All parameters are required.
func New(s *transact.Service, directory Tenants, links SetupLinks) *Tenancy {
	return &Tenancy{transact: s, directory: directory, links: links}
}

// Of returns the same with another service.
func (c *Tenancy) Of(s *transact.Service) *Tenancy { return New(s, c.directory, c.links) }

// A reader is a transaction that reads for a caller.
type reader struct{ *transact.Reader }

// A writer is a transaction that writes for a caller.
type writer struct {
	reader
	*transact.Changes

	doubts  []string // what is odd in a policy that was written
	reverts int64    // the version of a policy that is taken up again; 0: none
}

func (c *Tenancy) read(ctx context.Context, by hub.Caller, do func(ctx context.Context, r *reader) error) error {
	return c.transact.Read(ctx, by, func(ctx context.Context, r *transact.Reader) error { return do(ctx, &reader{r}) })
}

func (c *Tenancy) write(ctx context.Context, by hub.Caller, do func(ctx context.Context, w *writer) error) error {
	return c.writeOr(ctx, by, false, do)
}

func (c *Tenancy) writeOr(ctx context.Context, by hub.Caller, dryRun bool, do func(ctx context.Context, w *writer) error) error {
	return c.transact.WriteOr(ctx, by, dryRun, func(ctx context.Context, r *transact.Reader, ch *transact.Changes) error {
		return do(ctx, &writer{reader: reader{r}, Changes: ch})
	})
}
