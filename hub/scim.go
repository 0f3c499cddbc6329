package hub

import (
	"encoding/json"
	"time"
)

// A SCIMToken lets an identity provider provision people and groups. Only the
// hash of its secret is stored.
type SCIMToken struct {
	ID        TokenID
	Name      string
	Prefix    string
	Hash      [32]byte
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    *time.Time
}

// A SCIMUser is a person whom an identity provider has provisioned. The account
// has the same id.
type SCIMUser struct {
	ID         UserID
	UserName   string // as the provider writes it; the account's name is in lower case
	ExternalID string
	Active     bool
	Attributes json.RawMessage // the others, as they were given
	Version    int64
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Groups     []SCIMRef
}

// A SCIMGroup is a group of such people. Policies name it by DisplayName.
type SCIMGroup struct {
	ID          string
	DisplayName string
	ExternalID  string
	Version     int64
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Members     []SCIMRef
}

// A SCIMRef is a member of a group, or a group of a user.
type SCIMRef struct {
	ID      string
	Display string
}

// A SCIMQuery selects users or groups. Empty fields select nothing apart.
type SCIMQuery struct {
	ID         string
	Name       string // userName or displayName, in any case
	ExternalID string
	Email      string // in any case
	Member     string // of a group: id of a user
	Active     *bool
	Start      int // 1 is the first
	Count      int
	NoMembers  bool // members are not wanted
}
