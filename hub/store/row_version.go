package store

import (
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A nullVersion is a row version as it is read. A row with the same version was
// not changed since: a transaction is invisible before its end. Transaction
// numbers are those of one server, and a promoted standby may reuse them; it
// has another start time.
type nullVersion struct {
	server              time.Time
	application, status uint32
	operation, rendered *uint32 // nil: there is none
	failing             bool    // it has conditions, or may have some
}

// dest is in the order of the columns.
func (m *nullVersion) dest() []any {
	return []any{&m.server, &m.application, &m.status, &m.operation, &m.rendered, &m.failing}
}

// version is the zero mark for what must always be read again.
func (m *nullVersion) version() hub.RowVersion {
	if m.failing {
		return hub.RowVersion{}
	}
	out := hub.RowVersion{Server: m.server.UnixMicro(), Application: m.application, Status: m.status}
	if m.operation != nil {
		out.Operation = *m.operation
	}
	if m.rendered != nil {
		out.Rendered = *m.rendered
	}
	return out
}
