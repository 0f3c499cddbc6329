package wire

import (
	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// An Appender numbers and chains rows.
type Appender struct {
	Head hub.LogHead
	Rows []hub.LogRow
}

// Add refuses a row that could not be sent: it would block all that come after
// it. Whoever makes rows has asked before whether they fit.
func (a *Appender) Add(row hub.LogRow) error {
	if len(row.Body) > maxRow {
		return oversize{fault.New(fault.Exceeded, "a row of the desired log has %d bytes, and at most %d can be sent at once", len(row.Body), maxRow)}
	}
	row.Seq = a.Head.Seq + 1
	row.Chain = hashchain.Next(a.Head.Chain, uint64(row.Seq), int32(row.Kind), string(row.Application), row.Body)
	a.Head.Seq, a.Head.Chain = row.Seq, row.Chain
	a.Rows = append(a.Rows, row)
	return nil
}

// Row is a row of the log as agents get it.
func Row(row hub.LogRow) *linkv1.Row {
	return &linkv1.Row{Seq: uint64(row.Seq), Kind: linkv1.RowKind(row.Kind), AppId: string(row.Application), Body: row.Body, Chain: row.Chain}
}

// MaxPushedRows is how many rows are worth being pushed to streams; more are
// read.
const MaxPushedRows = 20

// A PushedRows is what one transaction has added to a log.
type PushedRows struct {
	From, To hub.LogHead
	Rows     []hub.LogRow
}
