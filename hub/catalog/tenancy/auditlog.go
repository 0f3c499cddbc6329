package tenancy

import (
	"context"
	"io"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/shared/auditlog"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Audit returns the newest records that a filter picks.
func (c *Tenancy) Audit(ctx context.Context, by hub.Caller, f hub.AuditFilter) (hub.AuditPage, error) {
	var out hub.AuditPage
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if err := r.May(access.Audit, access.Get); err != nil {
			return err
		}
		out, err = r.SearchAudit(ctx, f)
		return err
	})
	return out, err
}

// An AuditCheck is what a check of the audit log has found.
type AuditCheck struct {
	hub.AuditHead
	FirstBad int64 // number of the first record that does not fit; 0: all fit
}

// VerifyAudit checks the chain of the tenant's audit log.
func (c *Tenancy) VerifyAudit(ctx context.Context, by hub.Caller) (AuditCheck, error) {
	var out AuditCheck
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if err := r.May(access.Audit, access.Get); err != nil {
			return err
		}
		if out.AuditHead, err = r.AuditHead(ctx); err != nil {
			return err
		}
		out.FirstBad, err = r.Tx.VerifyAudit(ctx)
		return err
	})
	return out, err
}

// AuditHead returns where the tenant's log ends and begins.
func (c *Tenancy) AuditHead(ctx context.Context, by hub.Caller) (hub.AuditHead, error) {
	var out hub.AuditHead
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if err := r.May(access.Audit, access.Get); err != nil {
			return err
		}
		out, err = r.AuditHead(ctx)
		return err
	})
	return out, err
}

// KeepAudit sets after how many days records are removed; 0: never.
func (c *Tenancy) KeepAudit(ctx context.Context, by hub.Caller, days int) (hub.AuditHead, error) {
	var out hub.AuditHead
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Audit, access.Update, "retention"); err != nil {
			return err
		}
		old, err := w.AuditHead(ctx)
		if err != nil {
			return err
		}
		if err := w.KeepAudit(ctx, days); err != nil {
			return err
		}
		w.Note(access.Update, access.Audit, "retention", "", map[string]any{"days": old.KeepDays}, map[string]any{"days": days})
		out, err = w.AuditHead(ctx)
		return err
	})
	return out, err
}

// An AuditExport is a log that is about to be written, as of now.
type AuditExport struct {
	c    *Tenancy
	by   hub.Caller
	head hub.AuditHead
}

// ExportAudit begins an export of the whole log, which leaves a record of its
// own in the log.
func (c *Tenancy) ExportAudit(ctx context.Context, by hub.Caller) (*AuditExport, error) {
	e := &AuditExport{c: c, by: by}
	err := c.write(ctx, by, func(_ context.Context, w *writer) error {
		if err := w.Need(access.Audit, access.Get, "*"); err != nil {
			return err
		}
		w.Note("export", access.Audit, "*", "", nil, nil)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = c.transact.Store.ReadTenant(ctx, by.Tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		e.head, err = tx.AuditHead(ctx)
		return err
	})
	return e, err
}

// WriteTo writes the log, a part at a time, each in a transaction of its own:
// a slow reader holds none.
func (e *AuditExport) WriteTo(ctx context.Context, w io.Writer) error {
	return WriteAudit(ctx, e.c.transact, hub.Tenant{ID: e.by.Tenant, Name: e.by.TenantName}, e.head, w)
}

// auditPart is how many records are read at once.
const auditPart = 500

// WriteAudit writes the log of a tenant up to a head.
func WriteAudit(ctx context.Context, s *transact.Service, t hub.Tenant, head hub.AuditHead, to io.Writer) error {
	w, err := auditlog.NewWriter(to, auditlog.Header{Tenant: t.Name, TenantID: string(t.ID), ExportedAt: s.Now().UTC(), Anchor: head.Anchor})
	if err != nil {
		return err
	}
	for seq := head.Anchor.Seq; seq < head.Head.Seq; {
		var part []hub.AuditRecord
		err := s.Store.ReadTenant(ctx, t.ID, func(ctx context.Context, tx transact.Tx) (err error) {
			part, err = tx.Audit(ctx, seq, int(min(auditPart, head.Head.Seq-seq)))
			return err
		})
		if err != nil {
			return err
		}
		if len(part) == 0 || part[0].Seq != seq+1 {
			return fault.With(fault.New(fault.Conflict, "record %d is missing", seq+1), "audit log", "records may have been removed because of their age meanwhile; export the log again")
		}
		for _, r := range part {
			if err := w.Write(r.Line()); err != nil {
				return err
			}
		}
		seq = part[len(part)-1].Seq
	}
	return w.End()
}

// StreamBegun notes that a caller follows changes.
func (c *Tenancy) StreamBegun(ctx context.Context, by hub.Caller, object string) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "stream-begin", Resource: access.Applications, Object: object, Result: audit.Allowed})
}

// StreamEnded notes the end of a stream, and why the hub ended it.
func (c *Tenancy) StreamEnded(ctx context.Context, by hub.Caller, object, reason string) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "stream-end", Resource: access.Applications, Object: object, Result: audit.Allowed, Reason: reason})
}

// Begin asks whether a request with this key was answered before. Found with
// status 0 means that it is under way now.
func (c *Tenancy) Begin(ctx context.Context, by hub.Caller, key string, request [32]byte) (status int, body []byte, found bool, err error) {
	err = c.transact.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		status, body, found, err = tx.BeginIdempotent(ctx, key, string(by.User), request)
		return err
	})
	return status, body, found, err
}

// Finish stores the response to a request with a key; status 0 deletes the key,
// so that the request may be retried.
func (c *Tenancy) Finish(ctx context.Context, by hub.Caller, once hub.IdempotencyKey, status int, body []byte) error {
	return c.transact.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx transact.Tx) error {
		return tx.FinishIdempotent(ctx, once, string(by.User), status, body)
	})
}
