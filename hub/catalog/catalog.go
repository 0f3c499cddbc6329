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
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Parts are what a catalogue works with. All are required.
type Parts struct {
	Store      Store
	Directory  Tenants
	SetupLinks SetupLinks
	Notify     Notifier
	Pace       Pacer
	Inviter    Inviter
	Permits    Permits
	Now        func() time.Time
	Log        *slog.Logger
}

// A Catalog is what a hub replica has one of. Many goroutines may use it.
type Catalog struct {
	Parts
	rights *access.Cache
}

// New makes a catalogue.
func New(p Parts) *Catalog { return &Catalog{Parts: p, rights: access.NewCache()} }

// index returns the rights of a caller as of this transaction.
func (c *Catalog) index(ctx context.Context, tx Tx, by hub.Caller) (*access.Index, error) {
	rights, err := c.rights.Rights(ctx, tx.ID(), tx.PolicyVersion(), func(ctx context.Context) (access.Policy, error) {
		text, _, err := tx.Policy(ctx)
		if err != nil {
			return access.Policy{}, err
		}
		apart, err := tx.SettingValues(ctx, hub.SettingsMap, []string{settings.RollbackKey})
		if err != nil {
			return access.Policy{}, err
		}
		projects, err := tx.Projects(ctx)
		return access.Policy{Text: text, Projects: projects, RollbackApart: settings.RollbackApart(apart)}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rights of tenant %s: %w", tx.ID(), err)
	}
	return rights.For(access.SubjectOf(by))
}

// A reader is a transaction that reads for a caller.
type reader struct {
	Tx
	by     hub.Caller
	rights *access.Index
}

// read runs do in a transaction that sees one moment.
func (c *Catalog) read(ctx context.Context, by hub.Caller, do func(ctx context.Context, r *reader) error) error {
	return c.Store.ReadTenant(ctx, by.Tenant, func(ctx context.Context, tx Tx) error {
		rights, err := c.index(ctx, tx, by)
		if err != nil {
			return err
		}
		return do(ctx, &reader{Tx: tx, by: by, rights: rights})
	})
}

// may is the right to read something that hides nothing by existing, such as
// a list; the error is fault.Denied.
func (r *reader) may(resource, action string) error {
	if r.rights.Any(resource, action) {
		return nil
	}
	return denied(access.Rule{Resource: resource, Action: action, Object: "*"})
}

// A writer is a transaction that writes for a caller, and what is left to do
// when it has committed.
type writer struct {
	reader
	now     time.Time
	notes   []audit.Entry
	wakes   []hub.ClusterID
	revoked bool                 // agents are no longer good, or good again
	due     []string             // kinds of work
	later   func(follows func()) // takes what follows from the write; nil: it begins at once

	catalog *Catalog
}

// errDryRun takes back a transaction that was only tried.
var errDryRun = errors.New("dry run")

// write runs do in one transaction, with the audit records that do noted.
// Refusals are recorded in a transaction of their own.
func (c *Catalog) write(ctx context.Context, by hub.Caller, do func(ctx context.Context, w *writer) error) error {
	return c.writeOr(ctx, by, false, do)
}

func (c *Catalog) writeOr(ctx context.Context, by hub.Caller, dryRun bool, do func(ctx context.Context, w *writer) error) error {
	return c.writeAs(ctx, by.Tenant, dryRun, func(ctx context.Context, tx Tx) (hub.Caller, *access.Index, error) {
		rights, err := c.index(ctx, tx, by)
		return by, rights, err
	}, do)
}

// writeAs is write for whom the transaction itself finds out to be calling.
func (c *Catalog) writeAs(ctx context.Context, tenant hub.TenantID, dryRun bool,
	who func(ctx context.Context, tx Tx) (hub.Caller, *access.Index, error), do func(ctx context.Context, w *writer) error,
) error {
	var w *writer
	by := hub.Caller{Tenant: tenant}
	err := c.Store.InTenant(ctx, tenant, func(ctx context.Context, tx Tx) error {
		var rights *access.Index
		var err error
		if by, rights, err = who(ctx, tx); err != nil {
			return err
		}
		w = &writer{reader: reader{Tx: tx, by: by, rights: rights}, now: c.Now(), catalog: c}
		if err := do(ctx, w); err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		failpoint.Here(failpoint.HubCatalogWritten)
		for _, n := range w.notes {
			if err := tx.AppendAudit(ctx, audit.Record(by, n, w.now)); err != nil {
				return err
			}
		}
		if by.Idempotency.Key != "" {
			return tx.SettleIdempotent(ctx, by.Idempotency, string(by.User))
		}
		return nil
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	if err != nil {
		return c.refused(ctx, by, err)
	}
	failpoint.Here(failpoint.HubCatalogCommitted)
	c.notify(by.Tenant, w)
	return nil
}

func (c *Catalog) notify(tenant hub.TenantID, w *writer) {
	follows := func() {
		for _, cluster := range w.wakes {
			if cluster != "" {
				c.Notify.Wake(cluster)
			}
		}
		for _, kind := range w.due {
			c.Notify.Due(kind)
		}
	}
	if w.later != nil {
		w.later(follows)
	} else {
		follows()
	}
	if w.revoked {
		c.Notify.Revoked()
	}
	c.Notify.Changed(tenant)
}

// note leaves an audit record of an act that is allowed.
func (w *writer) note(action, resource, object, reason string, before, after any) {
	w.notes = append(w.notes, audit.Entry{
		Action: action, Resource: resource, Object: object, Result: audit.Allowed, Reason: reason, Before: before, After: after,
	})
}

// A refusal is the error of a write that the caller has no right to. It
// carries what the audit log is to know.
type refusal struct {
	error
	entry audit.Entry
}

func (r *refusal) Unwrap() error { return r.error }

// withObject is fault.With for errors of a write: a refusal stays one.
func withObject(err error, object string) error {
	var r *refusal
	if !errors.As(err, &r) {
		return fault.With(err, object, "")
	}
	return &refusal{fault.With(r.error, object, ""), r.entry}
}

// refused records a refusal and gives back the error that the caller reads.
// If the record cannot be written, that is what the caller hears: no refusal
// goes unrecorded.
func (c *Catalog) refused(ctx context.Context, by hub.Caller, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	record := audit.Record(by, r.entry, c.Now())
	noted := c.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx Tx) error { return tx.AppendAudit(ctx, record) })
	if noted != nil {
		c.Log.ErrorContext(ctx, "a refused write is not in the audit log", logkey.Error, noted)
		return noted
	}
	return r.error
}

// need is the right to act on an object that the caller knows of. Without it
// the write ends, and the audit log says so.
func (w *writer) need(resource, action string, objects ...string) error {
	if w.rights.CheckAny(resource, action, objects...) {
		return nil
	}
	return w.refuse(resource, action, objects[0], denied(access.Rule{Resource: resource, Action: action, Object: objects[0]}))
}

func (w *writer) refuse(resource, action, object string, err error) error {
	e, _ := fault.As(err)
	reason := ""
	if e != nil {
		reason = e.Cause
	}
	return &refusal{err, audit.Entry{Action: action, Resource: resource, Object: object, Result: audit.Denied, Reason: reason}}
}

// denied is what a caller reads who lacks a right.
func denied(r access.Rule) error {
	return fault.With(fault.New(fault.Denied, "you have no right to %s this", verb(r.Action)), one(r.Resource)+" "+r.Object,
		fmt.Sprintf("ask an admin of the tenant for: %s, %s, %s", r.Resource, r.Action, r.Object))
}

func verb(action string) string {
	switch action {
	case access.Get:
		return "see"
	case access.Rollback:
		return "roll back"
	case access.Sync:
		return "synchronise"
	}
	return action
}

// one is the singular of a resource.
func one(resource string) string {
	switch resource {
	case access.Repositories:
		return "repository"
	case access.Audit:
		return "audit log"
	}
	return resource[:len(resource)-1]
}

// missing is the one answer for what is not there and for what the caller
// may not see.
func missing(resource, name string) error {
	return fault.New(fault.Missing, "there is no %s %q that you may see", one(resource), name)
}

// hide turns "not there" from the store into the one answer.
func hide(err error, resource, name string) error {
	if fault.KindOf(err) == fault.Missing {
		return missing(resource, name)
	}
	return err
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
