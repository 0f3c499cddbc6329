package hub

import (
	"encoding/json"
	"time"
)

// A HistoryEntry is one recorded sync of an application (APP-12).
type HistoryEntry struct {
	ID          int64           `json:"id"` // 1, 2, 3 … within the application
	Application ApplicationID   `json:"-"`
	Operation   OperationID     `json:"operation"`
	Snapshot    SnapshotID      `json:"snapshot"`
	Revision    string          `json:"revision"`
	Revisions   []string        `json:"revisions,omitempty"`
	Source      json.RawMessage `json:"source,omitempty"` // as the spec had it; of several sources the list of them
	Initiator   Initiator       `json:"initiatedBy"`
	Reason      string          `json:"reason,omitempty"`
	StartedAt   time.Time       `json:"deployStartedAt"`
	DeployedAt  time.Time       `json:"deployedAt"`
	Commit      CommitInfo      `json:"commit,omitzero"` // empty where another commit gave the same manifests before
}
