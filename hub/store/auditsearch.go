package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// Numbers have no gaps, so a range of them is a bounded number of records.
	searchAudit = `
		SELECT seq, at, actor, via, address, action, resource, object, result, reason, detail::text AS detail, request, prev, hash
		FROM   audit_record
		WHERE  tenant_id = @tenant AND seq >= @first AND seq < @before
		  AND  (@actor = '' OR actor = @actor) AND (@action = '' OR action = @action)
		  AND  (@resource = '' OR resource = @resource) AND (@result = '' OR result = @result)
		  AND  (@object = '' OR strpos(object, @object) > 0)
		  AND  NOT (@without_streams AND action IN ('stream-begin', 'stream-end'))
		  AND  at >= coalesce(@from::timestamptz, '-infinity') AND at <= coalesce(@to::timestamptz, 'infinity')
		  AND  (@text = '' OR strpos(lower(concat_ws(' ', actor, address, object, reason, detail::text)), lower(@text)) > 0)
		ORDER  BY seq DESC
		LIMIT  @limit`
	firstAuditSince = `SELECT seq FROM audit_record WHERE tenant_id = $1 AND at >= $2 ORDER BY at LIMIT 1`
	lastAuditUntil  = `SELECT seq FROM audit_record WHERE tenant_id = $1 AND at <= $2 ORDER BY at DESC LIMIT 1`
	keepAudit       = `UPDATE audit_head SET keep_days = $2 WHERE tenant_id = $1`
	pruneAudit      = `SELECT directory.prune_audit($1)`
)

const (
	// searchAtOnce is how many records one search looks at.
	searchAtOnce = 20_000
	// auditSkew is how much later than its time a record may be numbered: a
	// transaction takes the time at its start, and the number at its end.
	auditSkew = 5 * time.Minute
	// pruneAtOnce is how many records one transaction removes.
	pruneAtOnce = 5000
)

// AuditHead returns where the tenant's log ends and begins.
func (t *Tenant) AuditHead(ctx context.Context) (hub.AuditHead, error) {
	var h hub.AuditHead
	err := t.tx.QueryRow(ctx, selectAuditHead, t.id).Scan(&h.Head.Seq, (*[]byte)(&h.Head.Hash), &h.Anchor.Seq, (*[]byte)(&h.Anchor.Hash), &h.KeepDays)
	if err != nil {
		return h, fmt.Errorf("read audit head: %w", err)
	}
	return h, nil
}

// SearchAudit returns the newest records that a filter picks.
func (t *Tenant) SearchAudit(ctx context.Context, f hub.AuditFilter) (hub.AuditPage, error) {
	var page hub.AuditPage
	first, before, err := t.auditRange(ctx, f)
	if err != nil || first >= before {
		return page, err
	}
	low := max(first, before-searchAtOnce)
	page.Records, err = list(ctx, t.tx, "audit records", scanAudit, searchAudit, pgx.StrictNamedArgs{
		"tenant": t.id, "first": low, "before": before, "actor": f.Actor, "action": f.Action, "resource": f.Resource, "result": f.Result,
		"object": f.Object, "without_streams": f.WithoutStreams, "from": f.From, "to": f.To, "text": f.Text, "limit": f.Limit,
	})
	if err != nil {
		return page, err
	}
	if len(page.Records) == f.Limit {
		low = page.Records[f.Limit-1].Seq
	}
	if low > first {
		page.Next = low
	}
	return page, nil
}

// auditRange returns which numbers a filter can pick: from first to before-1.
func (t *Tenant) auditRange(ctx context.Context, f hub.AuditFilter) (first, before int64, err error) {
	h, err := t.AuditHead(ctx)
	if err != nil {
		return 0, 0, err
	}
	first, before = h.Anchor.Seq+1, h.Head.Seq+1
	if f.Before > 0 {
		before = min(before, f.Before)
	}
	if f.From != nil {
		since, found, err := t.auditNumber(ctx, firstAuditSince, f.From.Add(-auditSkew))
		if err != nil || !found {
			return 0, 0, err
		}
		first = max(first, since)
	}
	if f.To != nil {
		until, found, err := t.auditNumber(ctx, lastAuditUntil, f.To.Add(auditSkew))
		if err != nil || !found {
			return 0, 0, err
		}
		before = min(before, until+1)
	}
	return first, before, nil
}

func (t *Tenant) auditNumber(ctx context.Context, statement string, at time.Time) (seq int64, found bool, err error) {
	err = t.tx.QueryRow(ctx, statement, t.id, at).Scan(&seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("find an audit record by time: %w", err)
	}
	return seq, true, nil
}

// KeepAudit sets after how many days records are removed; 0 means never. Fewer
// than 30 are fault.Invalid.
func (t *Tenant) KeepAudit(ctx context.Context, days int) error {
	_, err := exec(ctx, t.tx, "limit the age of audit records", keepAudit, t.id, days)
	if code(err) == checkViolation {
		return fault.With(fault.New(fault.Invalid, "audit records cannot be removed after %d days", days), "", "set 30 days or more, or 0 to store them for ever")
	}
	return err
}

// PruneAudit removes a part of the records that are older than the tenant's
// limit, and reports whether there may be more.
func (t *Tenant) PruneAudit(ctx context.Context) (more bool, err error) {
	var removed int64
	if err := t.tx.QueryRow(ctx, pruneAudit, pruneAtOnce).Scan(&removed); err != nil {
		return false, fmt.Errorf("remove old audit records: %w", err)
	}
	return removed == pruneAtOnce, nil
}
