package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// mostSetEvents is how many records of a set are read.
const mostSetEvents = 500

// ApplicationSetEvents returns the newest records of the audit log about a set
// that the caller may see. They need no right on the log.
func (c *Catalog) ApplicationSetEvents(ctx context.Context, by hub.Caller, namespace, name string) ([]hub.AuditRecord, error) {
	var out []hub.AuditRecord
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		s, err := r.visibleSet(ctx, namespace, name)
		if err != nil {
			return err
		}
		page, err := r.SearchAudit(ctx, hub.AuditFilter{Resource: access.ApplicationSets, Object: setObject(s), Limit: mostSetEvents})
		for _, record := range page.Records {
			if record.Object == setObject(s) { // the filter picks parts of names, too
				out = append(out, record)
			}
		}
		return err
	})
	return out, err
}
