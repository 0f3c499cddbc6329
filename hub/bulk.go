package hub

import (
	"encoding/json"
	"time"
)

// BulkID names one bulk request.
type BulkID string

// A BulkAction is what a bulk request does to each of its applications.
type BulkAction string

// The actions. Pause and resume are about the automation of an application.
const (
	BulkSync    BulkAction = "sync"
	BulkRefresh BulkAction = "refresh"
	BulkPause   BulkAction = "pause"
	BulkResume  BulkAction = "resume"
	BulkDelete  BulkAction = "delete"
)

// A BulkState is what became of one application of a bulk request.
type BulkState string

// The states. Done means that the write is committed: a sync has begun.
const (
	BulkPending   BulkState = "pending"
	BulkDone      BulkState = "done"
	BulkRefused   BulkState = "refused" // the caller has no right to it
	BulkFailed    BulkState = "failed"
	BulkCancelled BulkState = "cancelled"
)

// BulkOptions are how the action is done. Fields of other actions are zero.
type BulkOptions struct {
	Prune       bool   `json:"prune,omitempty"`       // sync
	Hard        bool   `json:"hard,omitempty"`        // refresh
	Cascade     *bool  `json:"cascade,omitempty"`     // delete; nil: as the application's finalizers say
	Propagation string `json:"propagation,omitempty"` // delete
	Reason      string `json:"reason,omitempty"`
}

// A Bulk is one request about many applications, and how far it is.
type Bulk struct {
	ID         BulkID
	Action     BulkAction
	Options    BulkOptions
	Query      string // empty: the applications were named
	By         Caller // who asked, as they were then
	CreatedAt  time.Time
	FinishedAt *time.Time
	Cancelled  string // why it was; empty: it was not
	Counts     map[BulkState]int
}

// Total is how many applications a request is about.
func (b Bulk) Total() int {
	n := 0
	for _, c := range b.Counts {
		n += c
	}
	return n
}

// Owner is who may read a bulk request and cancel it.
func (b Bulk) Owner() string { return BulkOwner(b.By) }

// BulkOwner is how the bulk requests of a caller are found again.
func BulkOwner(by Caller) string {
	if by.User != "" {
		return string(by.User)
	}
	return by.Username
}

// A BulkItem is one application of a bulk request.
type BulkItem struct {
	Ordinal   int // from 1 on
	Namespace string
	Name      string
	State     BulkState
	Message   string      // why it is refused or failed, or what was done
	Operation OperationID // that it began
	At        time.Time   // when it left pending
}

// A BulkMark says that a write is that of an item, so that it is done once.
type BulkMark struct {
	ID      BulkID // empty: the write is none
	Ordinal int
}

// BulkCaller is a caller as a bulk request stores them.
func BulkCaller(by Caller) (json.RawMessage, error) {
	by.Idempotency, by.Expect, by.Bulk = IdempotencyKey{}, 0, BulkMark{}
	return json.Marshal(by)
}
