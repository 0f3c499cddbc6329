// Package audit defines the records of the audit log. It writes none: the
// catalog puts each record into the transaction of its change, and the store
// numbers and links it there. A record is bounded in size, whatever a caller
// sends, and it is valid text.
package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
)

// Results of a record.
const (
	Allowed = "allowed"
	Denied  = "denied"
)

// limits of texts that callers control.
const (
	maxText   = 1000
	maxDetail = 64 << 10
)

// An Entry is what one act is, as the catalogue knows it.
type Entry struct {
	Action   string
	Resource string
	Object   string
	Result   string
	Reason   string
	Before   any // masked already; nil: there was nothing
	After    any // masked already; nil: there is nothing, or the act changes no object
}

// Record makes the record of an act. Texts that the caller controls are cut to
// keep the log readable; a detail that is too long is omitted, which the record
// says.
func Record(c hub.Caller, e Entry, at time.Time) hub.AuditRecord {
	return hub.AuditRecord{
		At:       at.UTC().Truncate(time.Microsecond),
		Actor:    actor(c),
		Via:      c.Via,
		Address:  cut(c.Address),
		Action:   e.Action,
		Resource: e.Resource,
		Object:   cut(e.Object),
		Result:   e.Result,
		Reason:   cut(repourl.RedactText(e.Reason)),
		Detail:   detail(c, e),
		Request:  c.Request,
	}
}

func actor(c hub.Caller) string {
	if c.Username == "" {
		return "(nobody)"
	}
	return cut(c.Username)
}

// detail has the credential that was used, and what changed.
func detail(c hub.Caller, e Entry) json.RawMessage {
	d := struct {
		Credential string `json:"credential,omitempty"`
		Before     any    `json:"before,omitempty"`
		After      any    `json:"after,omitempty"`
		Omitted    string `json:"omitted,omitempty"`
	}{Credential: c.Credential, Before: e.Before, After: e.After}
	b, err := json.Marshal(d)
	b = repourl.RedactJSON(b) // a second check: records are never deleted
	if err == nil && len(b) > maxDetail {
		d.Omitted = fmt.Sprintf("%d bytes exceed the log's limit for one change", len(b))
	}
	if err != nil {
		d.Omitted = "the change cannot be written as JSON"
	}
	if d.Omitted != "" {
		d.Before, d.After = nil, nil
		if b, err = json.Marshal(d); err != nil {
			return nil
		}
	}
	if bytes.Equal(b, []byte("{}")) {
		return nil
	}
	return b
}

// cut shortens a text, and removes invalid UTF-8 and NUL, which no database
// stores.
func cut(s string) string {
	if !utf8.ValidString(s) || bytes.IndexByte([]byte(s), 0) >= 0 {
		s = string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")), []byte{0}, []byte("\uFFFD")))
	}
	if len(s) <= maxText {
		return s
	}
	s = s[:maxText]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
