package hub

import (
	"time"

	"github.com/capstan-cd/capstan/shared/auditlog"
)

// Line is the record as it leaves the hub.
func (r AuditRecord) Line() auditlog.Record {
	return auditlog.Record{
		Seq: r.Seq, At: r.At, Actor: r.Actor, Via: r.Via, Address: r.Address, Action: r.Action, Resource: r.Resource, Object: r.Object,
		Result: r.Result, Reason: r.Reason, Request: string(r.Request), Prev: r.Prev, Hash: r.Hash, Detail: r.Detail,
	}
}

// ChainHash is the hash that links the record to the one before it.
func (r AuditRecord) ChainHash() []byte { return r.Line().ChainHash() }

// An AuditFilter picks records of a tenant. Empty fields pick all.
type AuditFilter struct {
	Before   int64 // only smaller numbers; 0: from the newest on
	Actor    string
	Action   string
	Resource string
	Object   string // a part of it
	Result   string
	Text     string // a part of actor, address, object, reason or detail, in any case
	// WithoutStreams leaves out that streams began and ended.
	WithoutStreams bool
	From, To       *time.Time
	Limit          int
}

// An AuditPage is the newest records that a filter picks. A search looks at a
// bounded number of records, so a page may be empty although there are more.
type AuditPage struct {
	Records []AuditRecord
	Next    int64 // the filter's Before for the next page; 0: there is none
}

// An AuditHead is where a tenant's log ends and begins.
type AuditHead struct {
	Head     auditlog.Mark // the newest record
	Anchor   auditlog.Mark // the newest record that was removed because of its age
	KeepDays int           // records are removed when they are older; 0: never
}
