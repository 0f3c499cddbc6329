// Package transact runs what a caller reads and writes, each in one transaction
// of the caller's tenant, with the caller's rights as of that transaction. It
// declares what hub/catalog needs of the store. It knows no noun of the product
// and decides nothing about one. hub/catalog calls it.
//
// What always holds: nothing is written without its audit record, a refused
// write is recorded too, and others hear of a write after its commit.
package transact

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
	"github.com/capstan-cd/capstan/shared/rbac"
)

// A Service runs what callers read and write. All its fields are required. Many
// goroutines may use it.
type Service struct {
	Store  Store
	Notify Notifier
	Now    func() time.Time
	Log    *slog.Logger
	Cache  *access.Cache
}

// index returns the rights of a caller as of this transaction.
func (s *Service) index(ctx context.Context, tx Tx, by hub.Caller) (*access.Index, error) {
	rights, err := s.AllRights(ctx, tx)
	if err != nil {
		return nil, err
	}
	return rights.For(access.SubjectOf(by)), nil
}

// AllRights returns the rights of everybody as of this transaction.
func (s *Service) AllRights(ctx context.Context, tx Tx) (*access.Rights, error) {
	rights, err := s.Cache.Rights(ctx, tx.ID(), tx.PolicyVersion(), func(ctx context.Context) (access.Policy, error) {
		set, err := tx.SettingsOf(ctx, []string{rbac.Map, hub.SettingsMap}, settings.PolicyKeys(), rbac.KeyPrefix)
		if err != nil {
			return access.Policy{}, err
		}
		projects, err := tx.Projects(ctx)
		return PolicyOf(set, projects), err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rights of tenant %s: %w", tx.ID(), err)
	}
	return rights, nil
}

// A Reader is a transaction of a caller, with the caller's rights as of it.
type Reader struct {
	Tx
	By     hub.Caller
	Rights *access.Index
}

// Read runs do in a transaction that sees one moment.
func (s *Service) Read(ctx context.Context, by hub.Caller, do func(ctx context.Context, r *Reader) error) error {
	return s.Store.ReadTenant(ctx, by.Tenant, func(ctx context.Context, tx Tx) error {
		rights, err := s.index(ctx, tx, by)
		if err != nil {
			return err
		}
		return do(ctx, &Reader{Tx: tx, By: by, Rights: rights})
	})
}

// May is the right to read something that hides nothing by existing, such as
// a list; the error is fault.Denied.
func (r *Reader) May(resource, action string) error {
	if r.Rights.Any(resource, action) {
		return nil
	}
	return r.denied(access.Rule{Resource: resource, Action: action, Object: "*"})
}

// Changes are what a write leaves to do: its audit records, and whom it concerns
// when it has committed.
type Changes struct {
	Now     time.Time
	Wakes   []hub.ClusterID
	Revoked bool     // agents are no longer good, or good again
	Due     []string // kinds of work
	// Credentials means that accounts, sessions or tokens are not what they were.
	Credentials bool
	Later       func(follows func()) // takes what follows from the write; nil: it begins at once

	notes []audit.Entry
}

// errDryRun takes back a transaction that was only tried.
var errDryRun = errors.New("dry run")

// Write runs do in one transaction, with the audit records that do noted.
// Refusals are recorded in a transaction of their own.
func (s *Service) Write(ctx context.Context, by hub.Caller, do func(ctx context.Context, r *Reader, ch *Changes) error) error {
	return s.WriteOr(ctx, by, false, do)
}

// WriteOr is Write that takes back everything if it is a dry run.
func (s *Service) WriteOr(ctx context.Context, by hub.Caller, dryRun bool, do func(ctx context.Context, r *Reader, ch *Changes) error) error {
	return s.WriteAs(ctx, by.Tenant, dryRun, func(ctx context.Context, tx Tx) (hub.Caller, *access.Index, error) {
		rights, err := s.index(ctx, tx, by)
		return by, rights, err
	}, do)
}

// WriteAs is WriteOr for whom the transaction itself finds out to be calling.
func (s *Service) WriteAs(ctx context.Context, tenant hub.TenantID, dryRun bool,
	who func(ctx context.Context, tx Tx) (hub.Caller, *access.Index, error), do func(ctx context.Context, r *Reader, ch *Changes) error,
) error {
	var ch *Changes
	by := hub.Caller{Tenant: tenant}
	err := s.Store.InTenant(ctx, tenant, func(ctx context.Context, tx Tx) error {
		var rights *access.Index
		var err error
		if by, rights, err = who(ctx, tx); err != nil {
			return err
		}
		ch = &Changes{Now: s.Now()}
		if err := do(ctx, &Reader{Tx: tx, By: by, Rights: rights}, ch); err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		failpoint.Here(failpoint.HubCatalogWritten)
		for _, n := range ch.notes {
			if err := tx.AppendAudit(ctx, audit.Record(by, n, ch.Now)); err != nil {
				return err
			}
		}
		if by.Bulk.ID != "" {
			return tx.SettleBulkItem(ctx, by.Bulk)
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
		return s.refused(ctx, by, err)
	}
	failpoint.Here(failpoint.HubCatalogCommitted)
	s.notify(by.Tenant, ch)
	return nil
}

func (s *Service) notify(tenant hub.TenantID, ch *Changes) {
	follows := func() {
		for _, cluster := range ch.Wakes {
			if cluster != "" {
				s.Notify.Wake(cluster)
			}
		}
		for _, kind := range ch.Due {
			s.Notify.Due(kind)
		}
	}
	if ch.Later != nil {
		ch.Later(follows)
	} else {
		follows()
	}
	if ch.Revoked {
		s.Notify.Revoked()
	}
	if ch.Credentials {
		s.Notify.Credentials(tenant)
	}
	s.Notify.Changed(tenant)
}

// Note leaves an audit record of an act that is allowed.
func (ch *Changes) Note(action, resource, object, reason string, before, after any) {
	ch.notes = append(ch.notes, audit.Entry{
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

// WithObject is fault.With for errors of a write: a refusal stays one.
func WithObject(err error, object string) error {
	var r *refusal
	if !errors.As(err, &r) {
		return fault.With(err, object, "")
	}
	return &refusal{fault.With(r.error, object, ""), r.entry}
}

// refused records a refusal and gives back the error that the caller reads.
// If the record cannot be written, that is what the caller hears: no refusal
// goes unrecorded.
func (s *Service) refused(ctx context.Context, by hub.Caller, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	record := audit.Record(by, r.entry, s.Now())
	noted := s.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx Tx) error { return tx.AppendAudit(ctx, record) })
	if noted != nil {
		s.Log.ErrorContext(ctx, "a refused write is not in the audit log", logkey.Error, noted)
		return noted
	}
	return r.error
}

// Need is the right to act on an object that the caller knows of. Without it
// the write ends, and the audit log says so.
func (r *Reader) Need(resource, action string, objects ...string) error {
	if r.Rights.CheckAny(resource, action, objects...) {
		return nil
	}
	return r.Refuse(resource, action, objects[0], r.denied(access.Rule{Resource: resource, Action: action, Object: objects[0]}))
}

// denied is Denied, or the reason why nobody has a right.
func (r *Reader) denied(rule access.Rule) error {
	if err := access.Problem(r.Rights.Problems()); err != nil {
		return err
	}
	return Denied(rule)
}

// Refuse is the error of an act without the right to it, which the audit log
// records.
func (r *Reader) Refuse(resource, action, object string, err error) error {
	e, _ := fault.As(err)
	reason := ""
	if e != nil {
		reason = e.Cause
	}
	return &refusal{err, audit.Entry{Action: action, Resource: resource, Object: object, Result: audit.Denied, Reason: reason}}
}

// Stale refuses an act for which the sign-in of the caller is too old. The audit
// log records it.
func (r *Reader) Stale(resource, action, object string) error {
	return r.Refuse(resource, action, object, errStale())
}

// errStale is what somebody reads who signed in too long ago for an act.
func errStale() error {
	return fault.With(fault.New(fault.Unknown, "this needs a sign-in within the last %d minutes", int(hub.FreshSignIn.Minutes())), "",
		"sign in again, or run `capstan relogin`, and repeat it")
}

// Denied is what a caller reads who lacks a right.
func Denied(r access.Rule) error {
	return fault.With(fault.New(fault.Denied, "you have no right to %s this", verb(r.Action)), subject(r),
		fmt.Sprintf("ask an admin of the tenant for: %s, %s, %s", r.Resource, r.Action, r.Object))
}

// subject names what a right is about: one object, or all of a resource.
func subject(r access.Rule) string {
	switch {
	case r.Object != "" && r.Object != "*":
		return Singular(r.Resource) + " " + r.Object
	case r.Resource == access.Audit:
		return Singular(r.Resource)
	}
	return r.Resource
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

// Singular is the singular of a resource.
func Singular(resource string) string {
	switch resource {
	case access.Repositories:
		return "repository"
	case access.Audit:
		return "audit log"
	}
	return resource[:len(resource)-1]
}

// Missing is the one answer for what is not there and for what the caller
// may not see.
func Missing(resource, name string) error {
	return fault.New(fault.Missing, "there is no %s %q that you may see", Singular(resource), name)
}

// Hide turns "not there" from the store into the one answer.
func Hide(err error, resource, name string) error {
	if fault.KindOf(err) == fault.Missing {
		return Missing(resource, name)
	}
	return err
}

// Record writes an audit record in a transaction of its own.
func (s *Service) Record(ctx context.Context, by hub.Caller, e audit.Entry) error {
	return s.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx Tx) error {
		return tx.AppendAudit(ctx, audit.Record(by, e, s.Now()))
	})
}
