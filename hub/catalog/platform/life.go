package platform

import (
	"context"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Actions on tenants, besides those of every resource.
const (
	ActionSuspend = "suspend"
	ActionResume  = "resume"
	ActionRestore = "restore"
	ActionExport  = "export"
)

// UpdateTenant changes what a tenant is called for people.
func (p *Platform) UpdateTenant(ctx context.Context, by hub.Caller, name, displayName string) (hub.Tenant, error) {
	return p.carryOut(ctx, by, name, access.Update, func(_ context.Context, t hub.Tenant, _ time.Time) (act, error) {
		return act{
			action: access.Update, before: map[string]any{"displayName": t.DisplayName}, after: map[string]any{"displayName": displayName},
			do: func(ctx context.Context, t hub.Tenant, _ time.Time) error {
				return p.directory.UpdateTenant(ctx, t.ID, displayName)
			},
		}, nil
	})
}

// SuspendTenant ends the service of a tenant until it is resumed: sign-ins,
// tokens, fetches, renders and syncs, and the connections of its agents, which
// go on enforcing the last state.
func (p *Platform) SuspendTenant(ctx context.Context, by hub.Caller, name, reason string) (hub.Tenant, error) {
	return p.carryOut(ctx, by, name, ActionSuspend, func(_ context.Context, t hub.Tenant, _ time.Time) (act, error) {
		if err := mayEnd(by, t, "suspended"); err != nil {
			return act{}, err
		}
		return act{
			action: ActionSuspend, reason: reason, before: state(t), after: map[string]any{"suspended": true},
			do: func(ctx context.Context, t hub.Tenant, now time.Time) error {
				return p.directory.SuspendTenant(ctx, t.ID, reason, now)
			},
		}, nil
	})
}

// ResumeTenant takes a suspension back.
func (p *Platform) ResumeTenant(ctx context.Context, by hub.Caller, name string) (hub.Tenant, error) {
	return p.carryOut(ctx, by, name, ActionResume, func(_ context.Context, t hub.Tenant, _ time.Time) (act, error) {
		if t.Deleting() {
			return act{}, errDeleting(t)
		}
		return act{
			action: ActionResume, before: state(t), after: map[string]any{"suspended": false},
			do: func(ctx context.Context, t hub.Tenant, _ time.Time) error {
				return p.directory.SetSuspended(ctx, t.ID, false)
			},
		}, nil
	})
}

// A Deletion is what the deletion of a tenant does.
type Deletion struct {
	Tenant  hub.Tenant
	Counts  hub.TenantCounts
	PurgeAt time.Time // if it is deleted now, or as it was
	Effects []string  // one sentence each
}

// PlanDeletion says what would happen, and changes nothing.
func (p *Platform) PlanDeletion(ctx context.Context, by hub.Caller, name string) (Deletion, error) {
	var d Deletion
	err := p.transact.Read(ctx, by, func(ctx context.Context, r *transact.Reader) error {
		if err := r.May(access.Tenants, access.Delete); err != nil {
			return err
		}
		t, err := p.directory.TenantByName(ctx, name)
		if err != nil {
			return transact.Hide(err, access.Tenants, validation.Shorten(name))
		}
		d.Tenant = t
		return nil
	})
	if err != nil {
		return d, err
	}
	if err := mayEnd(by, d.Tenant, "deleted"); err != nil {
		return d, err
	}
	d.PurgeAt = p.transact.Now().Add(p.grace)
	if d.Tenant.PurgeAt != nil {
		d.PurgeAt = *d.Tenant.PurgeAt
	}
	err = p.transact.Store.ReadTenant(ctx, d.Tenant.ID, func(ctx context.Context, tx transact.Tx) (err error) {
		d.Counts, err = tx.Counts(ctx)
		return err
	})
	d.Effects = effects(d.Counts, d.PurgeAt)
	return d, err
}

// effects is what a deletion does, at once and at the end of its grace period.
func effects(n hub.TenantCounts, purge time.Time) []string {
	until := purge.UTC().Format("2006-01-02 15:04 UTC")
	return []string{
		fmt.Sprintf("At once, %s cannot sign in any longer, and %s stop working.", count(n.Users, "account"), count(n.Tokens, "API token")),
		fmt.Sprintf("At once, the agents of %s are disconnected. They go on enforcing the last state.", count(n.Clusters, "cluster")),
		fmt.Sprintf("At once, %s and %s are neither fetched, rendered nor synced any longer.", count(n.Applications, "application"), count(n.Repositories, "repository")),
		"Nothing in any cluster is deleted, neither now nor later.",
		fmt.Sprintf("Until %s the tenant can be restored.", until),
		fmt.Sprintf("After %s all of it is removed for ever: applications, %s, settings, credentials, history, %s, and the tenant's encryption keys.",
			until, count(n.Projects, "project"), count(n.AuditRecords, "audit record")),
	}
}

func count(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "repository":
		return fmt.Sprintf("%d repositories", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// DeleteTenant begins the grace period after which everything of the tenant is
// removed. confirm is the tenant's name once more.
func (p *Platform) DeleteTenant(ctx context.Context, by hub.Caller, name, confirm string) (hub.Tenant, error) {
	return p.carryOut(ctx, by, name, access.Delete, func(_ context.Context, t hub.Tenant, now time.Time) (act, error) {
		if err := mayEnd(by, t, "deleted"); err != nil {
			return act{}, err
		}
		if t.Deleting() {
			return act{}, errDeleting(t)
		}
		if confirm != t.Name {
			return act{}, fault.With(fault.New(fault.Invalid, "a deletion needs the name of the tenant once more"), "tenant "+t.Name,
				"see what would happen at /api/v1/tenants/"+t.Name+"/deletion, and then repeat the request with confirm="+t.Name)
		}
		purge := now.Add(p.grace)
		return act{
			action: access.Delete, before: state(t), after: map[string]any{"purgeAt": purge},
			do: func(ctx context.Context, t hub.Tenant, now time.Time) error {
				return p.directory.DeleteTenant(ctx, t.ID, now, purge)
			},
		}, nil
	})
}

// RestoreTenant takes a deletion back, within its grace period.
func (p *Platform) RestoreTenant(ctx context.Context, by hub.Caller, name string) (hub.Tenant, error) {
	return p.carryOut(ctx, by, name, ActionRestore, func(_ context.Context, t hub.Tenant, now time.Time) (act, error) {
		if !t.Deleting() {
			return act{}, fault.With(fault.New(fault.Conflict, "it is not being deleted"), "tenant "+t.Name, "")
		}
		return act{
			action: ActionRestore, before: state(t), after: map[string]any{"purgeAt": nil},
			do: func(ctx context.Context, t hub.Tenant, now time.Time) error {
				return p.directory.RestoreTenant(ctx, t.ID, now)
			},
		}, nil
	})
}

func state(t hub.Tenant) any {
	return map[string]any{"suspended": t.Suspended, "purgeAt": t.PurgeAt}
}

// mayEnd keeps the platform's admins from shutting themselves out.
func mayEnd(by hub.Caller, t hub.Tenant, done string) error {
	if t.Name != homeTenant && t.ID != by.Tenant {
		return nil
	}
	return fault.With(fault.New(fault.Conflict, "it cannot be %s: platform admins sign in there", done), "tenant "+t.Name, "")
}

func errDeleting(t hub.Tenant) error {
	return fault.With(fault.New(fault.Conflict, "it is being deleted and will be removed at %s", t.PurgeAt.UTC().Format(time.RFC3339)),
		"tenant "+t.Name, "capstan tenant restore "+t.Name+" takes the deletion back")
}
