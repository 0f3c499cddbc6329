package admin

import (
	"context"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/auditlog"
)

const defaultPage = 100

// ListAudit answers the newest records of the audit log that the parameters
// pick.
func (h *Handlers) ListAudit(ctx context.Context, r gen.ListAuditRequestObject) (gen.ListAuditResponseObject, error) {
	p := r.Params
	f := hub.AuditFilter{
		Before: p.Before, Actor: p.Actor, Action: p.Action, Resource: p.Resource, Object: p.Object, Result: string(p.Result), Text: p.Text, WithoutStreams: p.WithoutStreams,
		From: moment(p.From), To: moment(p.To), Limit: p.Limit,
	}
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	page, err := h.catalog.Audit(ctx, h.caller(ctx), f)
	if err != nil {
		return nil, err
	}
	out := gen.ListAudit200JSONResponse{Items: make([]apimodel.AuditRecord, 0, len(page.Records)), Next: page.Next}
	for _, r := range page.Records {
		out.Items = append(out.Items, presentAudit(r))
	}
	return out, nil
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func presentAudit(r hub.AuditRecord) apimodel.AuditRecord {
	return apimodel.AuditRecord{
		Seq: r.Seq, At: r.At.UTC(), Actor: r.Actor, Via: r.Via, Address: r.Address, Action: r.Action, Resource: r.Resource, Object: r.Object,
		Result: r.Result, Reason: repourl.RedactText(r.Reason), Detail: repourl.RedactJSON(r.Detail), Request: string(r.Request), Prev: hex.EncodeToString(r.Prev), Hash: hex.EncodeToString(r.Hash),
	}
}

func presentMark(m auditlog.Mark) apimodel.AuditMark {
	return apimodel.AuditMark{Seq: m.Seq, Hash: hex.EncodeToString(m.Hash)}
}

// VerifyAudit checks the chain of the audit log.
func (h *Handlers) VerifyAudit(ctx context.Context, _ gen.VerifyAuditRequestObject) (gen.VerifyAuditResponseObject, error) {
	c, err := h.catalog.VerifyAudit(ctx, h.caller(ctx))
	if err != nil {
		return nil, err
	}
	out := gen.VerifyAudit200JSONResponse{
		Ok: c.FirstBad == 0, Records: c.Head.Seq - c.Anchor.Seq, FirstBad: c.FirstBad, Head: presentMark(c.Head), Anchor: presentMark(c.Anchor),
	}
	if c.FirstBad != 0 {
		out.Problem = "the record was altered, or one was removed or slipped in at this place"
	}
	return out, nil
}

type auditFile struct{ download }

// VisitExportAuditResponse writes the log.
func (f auditFile) VisitExportAuditResponse(w http.ResponseWriter) error { return f.send(w) }

// ExportAudit returns the whole audit log.
func (h *Handlers) ExportAudit(ctx context.Context, _ gen.ExportAuditRequestObject) (gen.ExportAuditResponseObject, error) {
	who := h.caller(ctx)
	e, err := h.catalog.ExportAudit(ctx, who)
	if err != nil {
		return nil, err
	}
	name := "audit-" + who.TenantName + "-" + time.Now().UTC().Format("20060102T150405Z") + ".jsonl"
	return auditFile{download{ctx, "application/x-ndjson", name, e.WriteTo}}, nil
}

// GetAuditRetention answers after how many days records are removed.
func (h *Handlers) GetAuditRetention(ctx context.Context, _ gen.GetAuditRetentionRequestObject) (gen.GetAuditRetentionResponseObject, error) {
	head, err := h.catalog.AuditHead(ctx, h.caller(ctx))
	if err != nil {
		return nil, err
	}
	return gen.GetAuditRetention200JSONResponse{Days: head.KeepDays, Anchor: presentMark(head.Anchor)}, nil
}

// PutAuditRetention sets after how many days records are removed.
func (h *Handlers) PutAuditRetention(ctx context.Context, r gen.PutAuditRetentionRequestObject) (gen.PutAuditRetentionResponseObject, error) {
	head, err := h.catalog.KeepAudit(ctx, h.caller(ctx), r.Body.Days)
	if err != nil {
		return nil, err
	}
	return gen.PutAuditRetention200JSONResponse{Days: head.KeepDays, Anchor: presentMark(head.Anchor)}, nil
}
