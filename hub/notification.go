package hub

import (
	"encoding/json"
	"time"
)

// DeliveryID identifies a message to one recipient.
type DeliveryID string

// The settings of notifications.
const (
	NotificationsMap    = "argocd-notifications-cm"
	NotificationsSecret = "argocd-notifications-secret"
)

// ProcessorsKey is the parameter that says how many messages of a tenant one
// replica sends at once.
const ProcessorsKey = "notificationscontroller.processors.count"

// A Transition is a change of an application that recipients may want to hear
// of. Fields that are empty did not change.
type Transition struct {
	ID          int64
	Application ApplicationID
	At          time.Time
	Sync        SyncStatus
	Health      HealthStatus
	HealthSince *time.Time
	Operation   OperationID
	Phase       Phase
	Removed     *Application // as it was, if it is there no more
}

// A NotifiedState is what recipients know of an application, and where its
// transitions have come to.
type NotifiedState struct {
	// Sent has the keys of Argo CD's annotation notified.notifications.argoproj.io,
	// with the second at which each was sent.
	Sent      map[string]int64 `json:"sent,omitempty"`
	Sync      SyncStatus       `json:"sync,omitempty"`
	Health    HealthStatus     `json:"health,omitempty"`
	Since     *time.Time       `json:"since,omitempty"` // of Health
	Operation OperationID      `json:"operation,omitempty"`
	Phase     Phase            `json:"phase,omitempty"`
	// Degraded means that it was Degraded since it was last Healthy.
	Degraded bool `json:"degraded,omitempty"`
}

// DeliveryState is how far a delivery came.
type DeliveryState string

// The states of deliveries. Those that are skipped were never tried.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
	DeliverySkipped   DeliveryState = "skipped"
)

// Over reports whether nothing more will happen in this state.
func (s DeliveryState) Over() bool { return s != DeliveryPending }

// A Delivery is one message to one recipient.
type Delivery struct {
	ID          DeliveryID    `json:"id"`
	Dedup       []byte        `json:"-"` // two of the same are one
	Application ApplicationID `json:"application,omitempty"`
	Namespace   string        `json:"namespace"`
	Name        string        `json:"name"`
	Project     string        `json:"project"`
	Trigger     string        `json:"trigger"` // empty: somebody tried a template
	Templates   []string      `json:"templates"`
	Service     string        `json:"service"`
	ServiceType string        `json:"serviceType"`
	Recipient   string        `json:"recipient"`
	State       DeliveryState `json:"state"`
	Reason      string        `json:"reason,omitempty"` // why it failed, was skipped, or waits
	// Message is what the service sends, as hub/notify has rendered it; it may
	// have secrets. Shown is the same without them.
	Message    json.RawMessage   `json:"-"`
	Shown      json.RawMessage   `json:"message"`
	Attempts   []DeliveryAttempt `json:"attempts"`
	Redelivers DeliveryID        `json:"redelivers,omitempty"`
	CreatedAt  time.Time         `json:"createdAt"`
	DueAt      *time.Time        `json:"dueAt,omitempty"`
	FinishedAt *time.Time        `json:"finishedAt,omitempty"`
}

// A DeliveryAttempt is one conversation with a service, without secrets.
type DeliveryAttempt struct {
	At       time.Time `json:"at"`
	TookMS   int64     `json:"tookMs"`
	Requests []string  `json:"requests,omitempty"` // method, address and body of each
	Status   int       `json:"status,omitempty"`   // of the last answer
	Answer   string    `json:"answer,omitempty"`
	Error    string    `json:"error,omitempty"` // empty: it was accepted
}

// A DeliveryFilter chooses deliveries; what is empty chooses all.
type DeliveryFilter struct {
	Application ApplicationID
	State       DeliveryState
	Service     string
	Trigger     string
	Projects    []string // nil: all
	Before      DeliveryID
	Limit       int
}

// A Thread is a conversation at a service that later messages join.
type Thread struct {
	Service, Recipient, Key string
	Place, Message          string // where it is, and its first message; empty: it has not begun
}
