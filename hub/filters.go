package hub

import "time"

// The types of this file are what the API, the sign-in and the store hand to
// each other.

// An ApplicationKey is what a user calls an application by.
type ApplicationKey struct {
	Namespace string
	Name      string
}

// An ApplicationFilter picks applications. Lists are ordered by name, then
// namespace; After is the key of the last one that the caller has.
type ApplicationFilter struct {
	All        bool     // every project may be seen
	Allowed    []string // projects that may be seen when All is false; empty: none
	Projects   []string // asked for; empty: any
	Namespaces []string
	Clusters   []ClusterID
	// Repositories are URLs in normal form: a source names one of them.
	Repositories []string
	Sync         []SyncStatus
	Health       []HealthStatus
	Query        string      // part of the name, any case
	Name         string      // exactly; empty: any
	Labels       []LabelTerm // all must hold
	After        ApplicationKey
	Limit        int
}

// A LabelTerm is one condition of a label selector. Values empty means that
// the label exists, or with Not that it does not.
type LabelTerm struct {
	Key    string
	Values []string
	Not    bool
}

// A RepositoryTemplate is a credential for all repositories under a URL prefix.
// The credential itself is stored encrypted.
type RepositoryTemplate struct {
	ID        RepositoryID   `json:"id"`
	URL       string         `json:"url"` // prefix
	Type      RepositoryKind `json:"type"`
	Name      string         `json:"name,omitempty"`
	Username  string         `json:"username,omitempty"`
	Proxy     string         `json:"proxy,omitempty"` // without its user name and password
	NoProxy   string         `json:"noProxy,omitempty"`
	CreatedAt time.Time      `json:"createdAt"`
}

// A Session is a signed-in user. Only the hash of its secret is stored.
type Session struct {
	Hash      [32]byte // SHA-256 of the secret
	Tenant    TenantID
	User      UserID
	CreatedAt time.Time
	SeenAt    time.Time
	ExpiresAt time.Time // absolute end
	// ID may be shown; it is set where sessions are listed.
	ID       SessionID
	Address  string // where it began
	Client   string // the program that began it, as it calls itself
	Provider string // the identity provider; empty for a password
}

// idlePart is the part of its lifetime after which an unused session is over.
const idlePart = 3

// Idle is how long the session may be unused.
func (s Session) Idle() time.Duration { return s.ExpiresAt.Sub(s.CreatedAt) / idlePart }

// An APIToken lets a program act as a user. Only the hash of its secret is
// stored.
type APIToken struct {
	ID        TokenID    `json:"id"`
	Tenant    TenantID   `json:"-"`
	User      UserID     `json:"-"`
	Name      string     `json:"name"`
	Prefix    string     `json:"prefix"` // first characters, to find it again
	Hash      [32]byte   `json:"-"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	UsedAt    *time.Time `json:"usedAt,omitempty"`
}

// A SetupLink lets its holder make the first account of a tenant, once.
type SetupLink struct {
	Hash      [32]byte // SHA-256 of the secret
	Tenant    TenantID
	Roles     []string // what the account may do
	ExpiresAt time.Time
}

// A SyncRequest is a person's wish to synchronise an application.
type SyncRequest struct {
	Override *Override // nil: the newest of the target revision
	Local    *Local    // manifests that came with the request
	// Present asks for the specification as it is now, where the target was
	// worked out for an older one.
	Present   bool
	Options   OperationOptions
	Initiator Initiator
	Reason    string
}

// WriteContext is the data by which a write of an application is checked.
type WriteContext struct {
	Application *Application // of that name, as it is stored; nil: there is none
	Project     *Project     // nil: there is none
	Clusters    []Cluster    // that its destination may stand for
	// AppNamespaces is the tenant's application.namespaces.
	AppNamespaces string
}
