package hub

import (
	"encoding/json"
	"time"
)

// A User is an account of one tenant: a local one, or that of a person of an
// identity provider.
type User struct {
	ID        UserID    `json:"id"`
	Tenant    TenantID  `json:"-"`
	Name      string    `json:"name"`
	Roles     []string  `json:"roles"` // platform-admin, tenant-admin, readonly
	Disabled  bool      `json:"disabled,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// Capabilities are what the account may be used for: CanSignIn and
	// CanUseTokens. A service account has the second alone, and no password.
	Capabilities []string `json:"capabilities"`
	Origin       Origin   `json:"origin,omitempty"`
	// Groups are those that an identity provider has put a person into by SCIM,
	// where they were asked for.
	Groups []string `json:"-"`

	// Provider is the id of the identity provider; empty for a local account.
	// Realm and Subject are those of its Person, and set for a new account alone.
	Provider string `json:"provider,omitempty"`
	Realm    string `json:"-"`
	Subject  string `json:"-"`
}

// The roles of the first release.
const (
	RolePlatformAdmin = "platform-admin"
	RoleTenantAdmin   = "tenant-admin"
	RoleReadOnly      = "readonly"
)

// A Caller is who is calling, as identity found out.
type Caller struct {
	Tenant     TenantID
	TenantName string
	User       UserID
	Username   string
	Roles      []string
	// Groups are the claims of a single sign-on that policies may name as a
	// subject: groups, and what else the tenant's scopes list. Local accounts
	// have none.
	Groups []string
	// Provider is the identity provider of the account; empty for a local one.
	Provider string
	// ProjectRole is set for a token of a project's role: proj:PROJECT:ROLE. Such
	// a caller has the rights of that role and of the default role, and no others.
	ProjectRole string
	Via         string    // "session", "token", "setup", "system", ViaAnonymous
	Credential  string    // id of the session or token, for the audit record
	Address     string    // remote address
	Client      string    // program, as it calls itself; set where somebody signs in
	SignedInAt  time.Time // when the session began; zero for tokens
	Request     RequestID
	Idempotency IdempotencyKey // set where the request must take effect at most once
	Expect      int64          // version that the object of the write must have; 0: any
	Bulk        BulkMark       // set where the write is an item of a bulk request
}

// FreshSignIn is how long after a sign-in a session may do what could destroy a
// tenant or take it over (SEC-E12).
const FreshSignIn = 15 * time.Minute

// Fresh reports whether the caller has signed in recently. A token is made for
// its use and needs no person.
func (c Caller) Fresh(now time.Time) bool {
	return c.Via != "session" || now.Sub(c.SignedInAt) < FreshSignIn
}

// ViaAnonymous is how somebody calls who has not signed in, where the tenant
// permits that. Such a caller has the rights of the default role.
const ViaAnonymous = "anonymous"

// An IdempotencyKey is a request that its caller may send again under the same key.
type IdempotencyKey struct {
	Key     string // empty: there is none
	Attempt string // distinguishes this attempt from others of the same request
}

// An AuditRecord is one write, or one refused write. Records of a tenant are
// numbered without gaps and chained by hash.
type AuditRecord struct {
	Seq      int64           `json:"seq"`
	At       time.Time       `json:"at"`
	Actor    string          `json:"actor"`
	Via      string          `json:"via"`
	Address  string          `json:"address,omitempty"`
	Action   string          `json:"action"`   // create, update, delete, sync …
	Resource string          `json:"resource"` // applications, projects …
	Object   string          `json:"object"`   // project/name or name
	Result   string          `json:"result"`   // allowed, denied
	Reason   string          `json:"reason,omitempty"`
	Detail   json.RawMessage `json:"detail,omitempty"` // masked before and after
	Request  RequestID       `json:"request,omitempty"`
	Prev     []byte          `json:"prev"`
	Hash     []byte          `json:"hash"`
}

// An Enrolment is a one-use invitation for an agent.
type Enrolment struct {
	ID        EnrolmentID `json:"id"`
	Tenant    TenantID    `json:"-"`
	Cluster   ClusterID   `json:"cluster"`
	Prefix    string      `json:"prefix"` // first characters of the token, to find it again
	ExpiresAt time.Time   `json:"expiresAt"`
	UsedAt    *time.Time  `json:"usedAt,omitempty"`
	CreatedBy string      `json:"createdBy"`
	Attempts  []Attempt   `json:"attempts,omitempty"`
}

// An Attempt is one use of a join token and how far it came.
type Attempt struct {
	At      time.Time `json:"at"`
	Address string    `json:"address"`
	Stage   string    `json:"stage"` // token, expired, used, version, csr, store, issued
	// Message and AgentVersion go into the cluster's Refusal alone.
	Message      string `json:"-"`
	AgentVersion string `json:"-"`
}
