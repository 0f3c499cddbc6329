// Package catalog is the one way in which people and programs change what a
// tenant has: it validates, authorises, stores and audits, in one
// transaction, and it reads for them what they may see. It takes Argo CD's
// objects as they are. It never renders, never talks to a cluster, and never
// decides what happens next; operations go to a Deployer. The API calls it.
//
// What always holds: nothing is written without its audit record; a write
// that was refused is recorded too; a check is made on the very object that
// is then used; and what a caller may not see answers like what is not there.
package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
	"github.com/capstan-cd/capstan/hub/catalog/platform"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
)

// Parts are what a catalogue works with. All are required.
type Parts struct {
	Service  *transact.Service
	Tenancy  *tenancy.Tenancy
	Platform *platform.Platform
	Pace     Pacer
	Inviter  Inviter
	Permits  Permits
	Sets     SetGenerator
}

// A SetGenerator runs the generators of application sets, with the rights of
// their projects.
type SetGenerator interface {
	// Check reports what is wrong with a set, and returns warnings for people.
	Check(s hub.ApplicationSet) (warnings []string, err error)
	// Generate returns a complete result within limits, or an error.
	Generate(ctx context.Context, tenant hub.TenantID, s hub.ApplicationSet, l hub.GenerationLimit) (hub.Generation, error)
}

// A Catalog is what a hub replica has one of. Many goroutines may use it. Its
// parts are not exported: whoever has a catalogue writes by its methods alone.
type Catalog struct {
	*tenancy.Tenancy
	*platform.Platform
	parts Parts
	lists *listing.Lists
}

// New makes a catalogue.
func New(p Parts) *Catalog {
	return &Catalog{Tenancy: p.Tenancy, Platform: p.Platform, parts: p, lists: listing.New(objectOf)}
}

// A reader is a transaction that reads for a caller.
type reader struct{ *transact.Reader }

// A writer is a transaction that writes for a caller.
type writer struct {
	reader
	*transact.Changes
	catalog *Catalog
}

func (c *Catalog) read(ctx context.Context, by hub.Caller, do func(ctx context.Context, r *reader) error) error {
	return c.parts.Service.Read(ctx, by, func(ctx context.Context, r *transact.Reader) error { return do(ctx, &reader{r}) })
}

func (c *Catalog) write(ctx context.Context, by hub.Caller, do func(ctx context.Context, w *writer) error) error {
	return c.writeOr(ctx, by, false, do)
}

func (c *Catalog) writeOr(ctx context.Context, by hub.Caller, dryRun bool, do func(ctx context.Context, w *writer) error) error {
	return c.parts.Service.WriteOr(ctx, by, dryRun, c.writing(do))
}

func (c *Catalog) writing(do func(ctx context.Context, w *writer) error) func(context.Context, *transact.Reader, *transact.Changes) error {
	return func(ctx context.Context, r *transact.Reader, ch *transact.Changes) error {
		return do(ctx, &writer{reader{r}, ch, c})
	}
}

// initiator is who an operation says that it was started by.
func initiator(by hub.Caller) hub.Initiator { return hub.Initiator{Username: by.Username} }

// unique drops repetitions of a short list and keeps its order.
func unique[T comparable](in []T) []T {
	seen := map[T]bool{}
	var out []T
	for _, v := range in {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
