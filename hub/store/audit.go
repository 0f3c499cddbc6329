package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// The quotas come with it: who adds something waits for this lock, and then
	// counts.
	lockAuditHead = `
		SELECT h.seq, h.hash, (SELECT json_object_agg(q.kind, q.most) FROM tenant_quota q WHERE q.tenant_id = $1)
		FROM   audit_head h WHERE h.tenant_id = $1 FOR UPDATE OF h`
	moveAuditHead = `UPDATE audit_head SET seq = $2, hash = $3 WHERE tenant_id = $1`
	insertAudit   = `
		INSERT INTO audit_record (tenant_id, seq, at, actor, via, address, action, resource, object, result, reason, detail, request, prev, hash)
		VALUES (@tenant, @seq, @at, @actor, @via, @address, @action, @resource, @object, @result, @reason, @detail, @request, @prev, @hash)`
	selectAudit = `
		SELECT seq, at, actor, via, address, action, resource, object, result, reason, detail::text AS detail, request, prev, hash
		FROM   audit_record
		WHERE  tenant_id = $1 AND seq > $2
		ORDER  BY seq
		LIMIT  $3`
	selectAuditHead = `SELECT seq, hash, floor_seq, floor_hash, keep_days FROM audit_head WHERE tenant_id = $1`
)

// AppendAudit adds a record that is stored if and only if the transaction
// commits. The store numbers and links it then; Seq, Prev and Hash of the
// caller are ignored. Records of one tenant have no gaps.
func (t *Tenant) AppendAudit(_ context.Context, r hub.AuditRecord) error {
	if r.Action == "" || r.Resource == "" || r.Result == "" {
		return fault.New(fault.Internal, "an audit record without action, resource or result")
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	t.audits = append(t.audits, r)
	return nil
}

// An auditHead is where a tenant's records end.
type auditHead struct {
	seq    int64
	hash   []byte
	quotas []byte // JSON; empty: the tenant has none of its own
}

// queueAuditHead locks the end of the records. It comes last in a batch,
// because the lock orders all writers of the tenant until they have committed.
func (t *Tenant) queueAuditHead(b *pgx.Batch, head *auditHead) {
	b.Queue(lockAuditHead, t.id).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&head.seq, &head.hash, &head.quotas); err != nil {
			return fmt.Errorf("lock audit head: %w", err)
		}
		return nil
	})
}

// writeAudit numbers and links the records.
func (t *Tenant) writeAudit(ctx context.Context, head auditHead) error {
	seq, hash := head.seq, head.hash
	b := &pgx.Batch{}
	for _, r := range t.audits {
		seq++
		r.Seq, r.Prev, r.At = seq, hash, micro(r.At)
		r.Hash = r.ChainHash()
		hash = r.Hash
		var detail any
		if len(r.Detail) > 0 {
			detail = string(r.Detail)
		}
		b.Queue(insertAudit, pgx.StrictNamedArgs{
			"tenant": t.id, "seq": r.Seq, "at": r.At, "actor": r.Actor, "via": r.Via, "address": r.Address, "action": r.Action,
			"resource": r.Resource, "object": r.Object, "result": r.Result, "reason": r.Reason, "detail": detail,
			"request": string(r.Request), "prev": nonNil(r.Prev), "hash": r.Hash,
		})
	}
	b.Queue(moveAuditHead, t.id, seq, hash)
	if err := send(ctx, t.tx, fmt.Sprintf("append %d audit records", len(t.audits)), b); err != nil {
		return err
	}
	t.audits = nil
	return nil
}

// An auditRow has the columns of a record, by name.
type auditRow struct {
	Seq      int64
	At       time.Time
	Actor    string
	Via      string
	Address  string
	Action   string
	Resource string
	Object   string
	Result   string
	Reason   string
	Detail   *string
	Request  hub.RequestID
	Prev     []byte
	Hash     []byte
}

func scanAudit(row pgx.CollectableRow) (hub.AuditRecord, error) {
	r, err := pgx.RowToStructByName[auditRow](row)
	if err != nil {
		return hub.AuditRecord{}, fmt.Errorf("read an audit record: %w", err)
	}
	out := hub.AuditRecord{
		Seq: r.Seq, At: r.At, Actor: r.Actor, Via: r.Via, Address: r.Address, Action: r.Action, Resource: r.Resource, Object: r.Object,
		Result: r.Result, Reason: r.Reason, Request: r.Request, Prev: r.Prev, Hash: r.Hash,
	}
	if r.Detail != nil {
		out.Detail = []byte(*r.Detail)
	}
	return out, nil
}

// Audit returns the records after seq, oldest first.
func (t *Tenant) Audit(ctx context.Context, after int64, limit int) ([]hub.AuditRecord, error) {
	return list(ctx, t.tx, "audit records", scanAudit, selectAudit, t.id, after, limit)
}

// VerifyAudit checks every record of the tenant against its number, its link
// and its hash, and the end against the head. It returns the number of the
// first record that is wrong or missing, or 0. Records that were removed because
// of their age are represented by the hash of the last one.
func (t *Tenant) VerifyAudit(ctx context.Context) (int64, error) {
	at, err := t.AuditHead(ctx)
	if err != nil {
		return 0, err
	}
	headSeq, headHash := at.Head.Seq, []byte(at.Head.Hash)
	seq, hash := at.Anchor.Seq, []byte(at.Anchor.Hash)
	for {
		page, err := t.Audit(ctx, seq, 1000)
		if err != nil {
			return 0, err
		}
		for _, r := range page {
			if r.Seq != seq+1 || !bytes.Equal(r.Prev, hash) || !bytes.Equal(r.Hash, r.ChainHash()) {
				return seq + 1, nil
			}
			seq, hash = r.Seq, r.Hash
		}
		if len(page) == 0 {
			break
		}
	}
	switch {
	case seq < headSeq:
		return seq + 1, nil
	case seq > headSeq || !bytes.Equal(hash, headHash):
		return seq, nil
	}
	return 0, nil
}
